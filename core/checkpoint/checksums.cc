#include "core/checkpoint/checksums.h"

#include <algorithm>

namespace lockstep {
namespace {

int64_t Blocks(const SafetensorsTensor& tensor) {
  return (tensor.bytes + kChecksumBlockBytes - 1) / kChecksumBlockBytes;
}

}  // namespace

FileChecksums::FileChecksums(const std::vector<SafetensorsTensor>& tensors) : values_(1) {
  for (const SafetensorsTensor& tensor : tensors) {
    element_bytes_.push_back(SafetensorsElementBytes(tensor.dtype).value_or(1));
    first_.push_back(values_.size());
    values_.resize(values_.size() + static_cast<size_t>(Blocks(tensor)));
  }
}

SafetensorsTensor FileChecksums::TensorFor(const std::vector<SafetensorsTensor>& tensors) {
  int64_t count = 1;
  for (const SafetensorsTensor& tensor : tensors) count += Blocks(tensor);
  return {.name = kChecksumsName, .dtype = "U64", .shape = {count}};
}

void FileChecksums::Add(size_t index, int64_t offset, std::span<const std::byte> bytes) {
  const int64_t size = element_bytes_[index];
  while (!bytes.empty()) {
    const int64_t block = offset / kChecksumBlockBytes;
    const auto count = static_cast<size_t>(
        std::min<int64_t>((block + 1) * kChecksumBlockBytes - offset, std::ssize(bytes)));
    values_[first_[index] + static_cast<size_t>(block)] +=
        ChecksumOf(size, offset / size, bytes.first(count));
    bytes = bytes.subspan(count);
    offset += static_cast<int64_t>(count);
  }
}

std::string LayOutWithChecksums(SafetensorsHeader* header,
                                std::optional<FileChecksums>* checksums) {
  LayOutSafetensors(header);  // for the bytes of each tensor
  checksums->emplace(header->tensors);
  header->tensors.push_back(FileChecksums::TensorFor(header->tensors));
  std::string first_bytes = LayOutSafetensors(header);
  header->tensors.pop_back();
  (*checksums)->SetFirstBytes(first_bytes);
  return first_bytes;
}

}  // namespace lockstep
