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
#include "core/base/file.h"
#include "core/checkpoint/checksums.h"
#include "core/checkpoint/safetensors_header.h"

namespace lockstep {

// A safetensors file with checksums that several ranks write together, each its own parts of the
// tensors, anywhere and in any order. One of them makes the file; the others open it then, with the
// same tensors. When all have written, one writes the sums of their checksums.
//
//   rank 0:  SharedSafetensors::Make(path, tensors, metadata)    ... barrier ...
//   all:     Open(path, tensors, metadata), Write(...), Sync()   ... add up checksums() ...
//   rank 0:  WriteChecksums(), Sync()
class SharedSafetensors {
 public:
  // Makes the file with room for `tensors`, of which name, dtype and shape count.
  static absl::Status Make(const std::string& path, std::vector<SafetensorsTensor> tensors,
                           std::map<std::string, std::string> metadata);
  static absl::StatusOr<SharedSafetensors> Open(const std::string& path,
                                                std::vector<SafetensorsTensor> tensors,
                                                std::map<std::string, std::string> metadata);

  // Writes bytes of tensor `index` of the list, whole elements, from its byte `offset` on.
  absl::Status Write(size_t index, int64_t offset, std::span<const std::byte> bytes);
  // Forces what was written to the disk.
  absl::Status Sync();

  // The checksums of what this rank has written. Every rank has that of the first bytes.
  FileChecksums& checksums() { return checksums_; }
  absl::Status WriteChecksums();

 private:
  SharedSafetensors(std::string path, FileDescriptor file, SafetensorsHeader header,
                    FileChecksums checksums, int64_t data_begin)
      : path_(std::move(path)),
        file_(std::move(file)),
        header_(std::move(header)),
        checksums_(std::move(checksums)),
        data_begin_(data_begin) {}

  std::string path_;
  FileDescriptor file_;
  SafetensorsHeader header_;  // without the tensor of checksums
  FileChecksums checksums_;
  int64_t data_begin_;
};

}  // namespace lockstep
