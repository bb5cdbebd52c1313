// Checksums of a safetensors file, kept in the file as its last tensor, "lockstep.checksums" (U64):
//
//   [0]  of the first bytes of the file, up to the data: length, names, shapes, metadata
//   [1...]  of the blocks of each tensor, in the order of their data; a block has 1 MiB, the last
//        of a tensor what is left
//
// A checksum is that of core/base/checksum.h over the elements of the block, by their index in the
// tensor. So ranks that write parts of one tensor add up what they have written, in any order, and
// who reads a part of a tensor checks the blocks that it lies in.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/checksum.h"
#include "core/checkpoint/safetensors_header.h"

namespace lockstep {

inline constexpr char kChecksumsName[] = "lockstep.checksums";
inline constexpr int64_t kChecksumBlockBytes = int64_t{1} << 20;

// The checksums of a file that is being written, or was read.
class FileChecksums {
 public:
  // For a file with these tensors, whose `bytes` are known, in the order of their data.
  explicit FileChecksums(const std::vector<SafetensorsTensor>& tensors);

  // The tensor that holds them in a file.
  static SafetensorsTensor TensorFor(const std::vector<SafetensorsTensor>& tensors);

  // Notes what is written of tensor `index`, from its byte `offset` on: whole elements.
  void Add(size_t index, int64_t offset, std::span<const std::byte> bytes);
  // The checksum of a block of tensor `index`.
  uint64_t Block(size_t index, int64_t block) const {
    return values_[first_[index] + static_cast<size_t>(block)];
  }

  // As the file has them.
  std::vector<uint64_t>& values() { return values_; }
  // The checksum of all of them.
  uint64_t Total() const {
    return ChecksumOf(sizeof(uint64_t), 0, std::as_bytes(std::span(values_)));
  }
  uint64_t first_bytes() const { return values_[0]; }
  void SetFirstBytes(std::string_view first_bytes) { values_[0] = ChecksumOf(first_bytes); }

 private:
  std::vector<int64_t> element_bytes_;  // by tensor
  std::vector<size_t> first_;           // index of the first block's checksum, by tensor
  std::vector<uint64_t> values_;
};

// LayOutSafetensors for a file with checksums: returns its first bytes, whose checksum `checksums`
// has. The tensor that holds the checksums follows those of `header`, which it does not join.
std::string LayOutWithChecksums(SafetensorsHeader* header, std::optional<FileChecksums>* checksums);

}  // namespace lockstep
