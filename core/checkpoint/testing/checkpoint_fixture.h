// What tests of checkpoints share.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/comm/launch.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gtest/gtest.h"

namespace lockstep {

// Where the ranks' parts of the matrix end, of 77 elements.
using Ends = std::vector<int64_t>;
inline constexpr int64_t kElements = 77;

// A folder of checkpoints, and states of ranks to save and to load.
class CheckpointFixture : public ::testing::Test {
 protected:
  CheckpointFixture() {
    folder_ = ::testing::TempDir() + "/checkpoint_test";
    std::filesystem::remove_all(folder_);
  }

  StateTensor Make(const std::string& name, const Shape& shape, float value) {
    Tensor tensor = kernels_.Empty(shape);
    kernels_.Fill(tensor, value);
    return {name, tensor, shape};
  }

  // Saves, each rank its state.
  absl::Status SaveAll(const CheckpointInfo& info, const std::vector<std::vector<StateTensor>>& all,
                       const SaveOptions& options) {
    return RunRanks(static_cast<int>(all.size()), {}, [&](RankHandle& handle) {
      CpuKernels kernels(allocator_);
      return SaveCheckpoint(folder_, info, all[handle.rank()], options, kernels, handle.comm());
    });
  }
  std::string Save(int64_t step, const std::vector<std::vector<StateTensor>>& all,
                   const SaveOptions& options = {}) {
    const absl::Status status =
        SaveAll({.step = step, .model = "m", .strategy = "s"}, all, options);
    EXPECT_TRUE(status.ok()) << status;
    return NewestCheckpoint(folder_)->value_or("none");
  }

  // One state with all that there is: a matrix and bytes in parts, a replica and a scalar that one
  // rank saves, in double and int64, and a tensor without elements. The matrix counts from
  // 1000 * step on.
  std::vector<StateTensor> State(const Ends& ends, size_t rank, int64_t step) {
    const auto part = [&](const std::string& name, const Shape& shape, DType dtype) {
      const auto scaled = [&](int64_t end) { return end * shape.elements() / kElements; };
      const int64_t begin = rank == 0 ? 0 : scaled(ends[rank - 1]);
      return StateTensor{name, kernels_.Empty({scaled(ends[rank]) - begin}, dtype), shape, begin};
    };
    StateTensor w = part("w", {7, 11}, DType::kF32);
    for (int64_t i = 0; i < w.tensor.elements(); ++i) {
      w.tensor.data<float>()[i] = static_cast<float>(1000 * step + w.first + i);
    }
    StateTensor bytes = part("bytes", {9}, DType::kU8);
    for (int64_t i = 0; i < bytes.tensor.elements(); ++i) {
      bytes.tensor.data<uint8_t>()[i] = static_cast<uint8_t>(200 + bytes.first + i);
    }
    StateTensor replica = {"replica", kernels_.Empty({3}, DType::kF64), {3}};
    for (int i = 0; i < 3; ++i) replica.tensor.data<double>()[i] = 1.0 / (i + 3);
    StateTensor scalar = {"scalar", kernels_.Empty({}, DType::kI64), {}};
    scalar.tensor.data<int64_t>()[0] = int64_t{1} << 60;
    StateTensor empty = {"empty", kernels_.Empty({3, 0}), {3, 0}};
    replica.is_writer = scalar.is_writer = empty.is_writer = rank == 0;
    return {w, bytes, replica, scalar, empty};
  }
  std::vector<std::vector<StateTensor>> States(const Ends& ends, int64_t step) {
    std::vector<std::vector<StateTensor>> all;
    for (size_t rank = 0; rank < ends.size(); ++rank) all.push_back(State(ends, rank, step));
    return all;
  }

  // Loads the parts of all ranks, and compares them with what they should be.
  void ExpectLoads(const std::string& path, const Ends& ends, int64_t step) {
    for (size_t rank = 0; rank < ends.size(); ++rank) {
      const std::vector<StateTensor> wanted = State(ends, rank, step);
      const std::vector<StateTensor> loaded = State(ends, rank, 0);
      for (const StateTensor& part : loaded) {
        std::fill_n(part.tensor.raw(), part.tensor.bytes(), std::byte{0x5a});
      }
      const auto info = LoadCheckpoint(path, {.model = "m"}, loaded, kernels_);
      ASSERT_TRUE(info.ok()) << info.status();
      EXPECT_EQ(info->step, step);
      for (size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_TRUE(std::equal(wanted[i].tensor.raw(),
                               wanted[i].tensor.raw() + wanted[i].tensor.bytes(),
                               loaded[i].tensor.raw()))
            << path << " rank " << rank << " of " << ends.size() << ": " << wanted[i].name;
      }
    }
  }

  // The message with which loading all of it is refused, which leaves the tensors as they were.
  std::string Refused(const std::string& path, const std::vector<StateTensor>& state,
                      const std::string& model = "m") {
    std::vector<std::vector<std::byte>> before;
    for (const StateTensor& part : state) {
      before.emplace_back(part.tensor.raw(), part.tensor.raw() + part.tensor.bytes());
    }
    const auto info = LoadCheckpoint(path, {.model = model}, state, kernels_);
    EXPECT_FALSE(info.ok());
    for (size_t i = 0; i < state.size(); ++i) {
      EXPECT_TRUE(std::equal(before[i].begin(), before[i].end(), state[i].tensor.raw()));
    }
    return std::string(info.status().message());
  }
  std::string Refused(const std::string& path) { return Refused(path, State({kElements}, 0, 0)); }

  std::vector<std::string> Names(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
  std::string folder_;
};

}  // namespace lockstep
