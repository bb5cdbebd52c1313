#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/safetensors_header.h"

namespace lockstep {

// A safetensors file that several ranks write together, each its own parts of the tensors, anywhere
// and in any order. One of them makes the file; the others open it then, with the same tensors.
//
//   rank 0:  SharedSafetensors::Make(path, tensors, metadata)    ... barrier ...
//   all:     Open(path, tensors, metadata), Write(...), Close()
class SharedSafetensors {
 public:
  // Of `tensors`, name, dtype and shape count.
  static absl::Status Make(const std::string& path, std::vector<SafetensorsTensor> tensors,
                           std::map<std::string, std::string> metadata);
  static absl::StatusOr<SharedSafetensors> Open(const std::string& path,
                                                std::vector<SafetensorsTensor> tensors,
                                                std::map<std::string, std::string> metadata);
  SharedSafetensors(SharedSafetensors&& other) noexcept;
  SharedSafetensors& operator=(SharedSafetensors&&) = delete;
  SharedSafetensors(const SharedSafetensors&) = delete;
  ~SharedSafetensors();

  // Writes bytes of tensor `index` of the list, from its byte `offset` on.
  absl::Status Write(size_t index, int64_t offset, std::span<const std::byte> bytes);
  // Forces what was written to the disk.
  absl::Status Close();

 private:
  SharedSafetensors(std::string path, int descriptor, SafetensorsHeader header, int64_t data_begin)
      : path_(std::move(path)),
        descriptor_(descriptor),
        header_(std::move(header)),
        data_begin_(data_begin) {}

  std::string path_;
  int descriptor_;  // -1: closed or moved from
  SafetensorsHeader header_;
  int64_t data_begin_;
};

}  // namespace lockstep
