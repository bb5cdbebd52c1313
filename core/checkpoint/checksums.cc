#include "core/checkpoint/checksums.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

constexpr size_t kDigits = 16;  // of a checksum

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

std::string FileChecksums::ToHex() const {
  std::string text;
  for (const uint64_t value : values_) absl::StrAppend(&text, absl::Hex(value, absl::kZeroPad16));
  return text;
}

bool FileChecksums::TakeHex(const std::string& text) {
  if (text.size() != kDigits * values_.size()) return false;
  for (size_t i = 0; i < values_.size(); ++i) {
    if (!absl::SimpleHexAtoi(text.substr(kDigits * i, kDigits), &values_[i])) return false;
  }
  return ToHex() == text;  // no spaces and signs, which SimpleHexAtoi permits
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

std::string LayOutWithChecksumsInMetadata(SafetensorsHeader* header,
                                          std::optional<FileChecksums>* checksums) {
  LayOutSafetensors(header);  // for the bytes of each tensor
  checksums->emplace(header->tensors);
  header->metadata[kChecksumsName] = std::string(kDigits * (*checksums)->values().size(), '0');
  std::string first_bytes = LayOutSafetensors(header);
  header->metadata.erase(kChecksumsName);
  (*checksums)->SetFirstBytes(first_bytes);
  return first_bytes;
}

std::optional<size_t> PlaceOfChecksums(std::string_view text) {
  // In names and values a quotation mark has a backslash before it: this stands nowhere else.
  const std::string before = absl::StrCat("\"", kChecksumsName, "\":\"");
  const size_t found = text.find(before);
  if (found == std::string_view::npos) return std::nullopt;
  return found + before.size();
}

}  // namespace lockstep
