// Checksums of a safetensors file, kept in the file, as 64-bit numbers:
//
//   [0]  of the first bytes of the file, up to the data: length, names, shapes, metadata
//   [1...]  of the blocks of each tensor, in the order of their data; a block has 1 MiB, the last
//        of a tensor what is left
//
// A checksum is that of core/base/checksum.h over the elements of the block, by their index in the
// tensor. So ranks that write parts of one tensor add up what they have written, in any order, and
// who reads a part of a tensor checks the blocks that it lies in.
//
// A checkpoint has them as its last tensor, "lockstep.checksums" (U64). Files that other programs
// read as well, weights and adapters that we export, have them in the entry "lockstep.checksums" of
// their metadata, each as 16 hexadecimal digits: other programs would take a tensor that they do
// not know for a weight. Checksum [0] is then that of the first bytes with zeros for these digits.

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
  // As metadata has them, 16 digits each.
  std::string ToHex() const;
  // Takes the checksums of a file from its metadata. False where the text is not what ToHex returns
  // for so many.
  bool TakeHex(const std::string& text);
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

// LayOutSafetensors for a file with checksums in its metadata, which `header` does not get: returns
// its first bytes with zeros for their digits.
std::string LayOutWithChecksumsInMetadata(SafetensorsHeader* header,
                                          std::optional<FileChecksums>* checksums);

// Where the digits begin in the first bytes, or the JSON, of a file that we have written with
// checksums in its metadata; nothing where they do not stand there as we write them.
std::optional<size_t> PlaceOfChecksums(std::string_view text);

}  // namespace lockstep
