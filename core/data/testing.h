// What the tests of this folder share.

#pragma once

#include <stdlib.h>  // mkdtemp

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/data/dataset.h"
#include "core/tensor/allocator.h"
#include "gtest/gtest.h"

namespace lockstep {

// A fresh directory for files, removed at the end.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "lockstep_data_test.XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }

  // Writes a file, in folders that are made as needed.
  void Write(const std::string& name, const std::string& contents) const {
    const std::filesystem::path file = std::filesystem::path(path_) / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream stream(file, std::ios::binary);
    stream << contents;
    stream.close();
    ASSERT_TRUE(stream.good()) << file;
  }

 private:
  std::string path_;
};

// The inputs and targets of some samples, copied out of a batch.
template <typename Input>
struct Filled {
  std::vector<Input> inputs;
  std::vector<int32_t> targets;

  friend bool operator==(const Filled&, const Filled&) = default;
};

template <typename Input>
Filled<Input> FillSamples(const Dataset& dataset, Split split, const std::vector<SampleKey>& keys) {
  CpuAllocator allocator;
  const Batch batch =
      EmptyBatch(dataset, static_cast<int64_t>(keys.size()), allocator, MemoryClass::kActivations);
  EXPECT_EQ(dataset.Fill(split, keys, batch), absl::OkStatus());
  const absl::Span<Input> inputs = batch.inputs.span<Input>();
  const absl::Span<int32_t> targets = batch.targets.span<int32_t>();
  return {{inputs.begin(), inputs.end()}, {targets.begin(), targets.end()}};
}

}  // namespace lockstep
