#include "core/checkpoint/safetensors.h"

#include <fcntl.h>     // O_RDONLY
#include <sys/stat.h>  // fstat
#include <unistd.h>    // pread

#include <algorithm>  // std::min, std::sort
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>  // std::memcpy
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr int64_t kLengthBytes = 8;

absl::Status ReadError(const std::string& path, int error_number) {
  return absl::ErrnoToStatus(error_number, absl::StrCat("cannot read \"", path, "\""));
}

// Reads out.size() bytes from `offset` on.
absl::Status ReadAt(const std::string& path, int descriptor, int64_t offset,
                    std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = pread(descriptor, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ReadError(path, errno);
    if (got == 0) {
      return absl::DataLossError(
          absl::StrCat("cannot read \"", path, "\": it ended at byte ", offset,
                       ", earlier than when it was opened: somebody changes it"));
    }
    out = out.subspan(static_cast<size_t>(got));
    offset += got;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SafetensorsReader> SafetensorsReader::Open(const std::string& path) {
  LS_ASSIGN_OR_RETURN(FileDescriptor file, OpenRegularFile(path, O_RDONLY));
  SafetensorsReader reader(path, std::move(file));
  const int descriptor = reader.file_.get();
  struct stat info;
  if (fstat(descriptor, &info) != 0) return ReadError(path, errno);

  const int64_t file_bytes = reader.file_bytes_ = info.st_size;
  if (file_bytes < kLengthBytes) {
    return UnsoundSafetensors(path, absl::StrCat("it has only ", file_bytes, " bytes"));
  }
  uint64_t header_bytes = 0;
  LS_RETURN_IF_ERROR(
      ReadAt(path, descriptor, 0, std::as_writable_bytes(std::span(&header_bytes, 1))));
  if (header_bytes > static_cast<uint64_t>(file_bytes - kLengthBytes)) {
    return UnsoundSafetensors(path, absl::StrCat("its header should have ", header_bytes,
                                                 " bytes, but the whole file has ", file_bytes));
  }
  if (header_bytes > static_cast<uint64_t>(kMaxSafetensorsHeaderBytes)) {
    return UnsoundSafetensors(
        path, absl::StrCat("its header has ", header_bytes, " bytes, more than the ",
                           kMaxSafetensorsHeaderBytes, " that the format allows"));
  }
  std::string json(header_bytes, '\0');
  LS_RETURN_IF_ERROR(
      ReadAt(path, descriptor, kLengthBytes, std::as_writable_bytes(std::span(json))));
  reader.data_begin_ = kLengthBytes + static_cast<int64_t>(header_bytes);
  LS_ASSIGN_OR_RETURN(reader.header_,
                      ParseSafetensorsHeader(json, file_bytes - reader.data_begin_, path));
  std::string first_bytes(kLengthBytes, '\0');
  std::memcpy(first_bytes.data(), &header_bytes, sizeof(header_bytes));
  LS_RETURN_IF_ERROR(reader.TakeChecksums(first_bytes + json));
  for (size_t i = 0; i < reader.tensors().size(); ++i) {
    reader.index_.emplace(reader.tensors()[i].name, i);
  }
  return reader;
}

absl::Status SafetensorsReader::TakeChecksums(std::string first_bytes) {
  if (header_.tensors.empty() || header_.tensors.back().name != kChecksumsName) {
    return TakeChecksumsFromMetadata(std::move(first_bytes));
  }
  const SafetensorsTensor stored = header_.tensors.back();
  header_.tensors.pop_back();
  const SafetensorsTensor expected = FileChecksums::TensorFor(header_.tensors);
  if (stored.dtype != expected.dtype || stored.shape != expected.shape) {
    return UnsoundSafetensors(path_, absl::StrCat("its tensor \"", kChecksumsName,
                                                  "\" is not that of its "
                                                  "tensors' checksums"));
  }
  checksums_.emplace(header_.tensors);
  LS_RETURN_IF_ERROR(ReadAt(path_, file_.get(), data_begin_ + stored.begin,
                            std::as_writable_bytes(std::span(checksums_->values()))));
  return CheckFirstBytes(first_bytes);
}

absl::Status SafetensorsReader::TakeChecksumsFromMetadata(std::string first_bytes) {
  const auto stored = header_.metadata.find(kChecksumsName);
  if (stored == header_.metadata.end()) return absl::OkStatus();
  remedy_ =
      absl::StrCat(kDamageRemedy, ". If another program has changed the file on purpose, remove \"",
                   kChecksumsName, "\" from its metadata");
  checksums_.emplace(header_.tensors);
  const std::optional<size_t> place = PlaceOfChecksums(first_bytes);
  const size_t digits = stored->second.size();
  if (!checksums_->TakeHex(stored->second) || !place || *place + digits > first_bytes.size()) {
    return UnsoundSafetensors(path_, absl::StrCat("\"", kChecksumsName,
                                                  "\" of its metadata is not that of its tensors' "
                                                  "checksums"));
  }
  header_.metadata.erase(stored);
  return CheckFirstBytes(first_bytes.replace(*place, digits, digits, '0'));
}

absl::Status SafetensorsReader::CheckFirstBytes(const std::string& first_bytes) const {
  if (ChecksumOf(first_bytes) == checksums_->first_bytes()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "\"", path_, "\" is damaged: its header does not have the checksum that was saved with it",
      remedy_));
}

const SafetensorsTensor* SafetensorsReader::Find(const std::string& name) const {
  const auto position = index_.find(name);
  return position == index_.end() ? nullptr : &header_.tensors[position->second];
}

absl::Status SafetensorsReader::Read(const SafetensorsTensor& tensor, std::span<std::byte> out,
                                     int64_t offset) const {
  return ReadPieces(tensor, {{.offset = offset, .out = out}});
}

absl::Status SafetensorsReader::ReadPieces(const SafetensorsTensor& tensor,
                                           std::vector<SafetensorsPiece> pieces) const {
  std::erase_if(pieces, [](const SafetensorsPiece& piece) { return piece.out.empty(); });
  std::sort(pieces.begin(), pieces.end(),
            [](const auto& a, const auto& b) { return a.offset < b.offset; });
  const int64_t data = data_begin_ + tensor.begin;
  std::vector<std::byte> block;
  int64_t number = -1;  // of the block that was read last
  for (const SafetensorsPiece& piece : pieces) {
    const int64_t end = piece.offset + std::ssize(piece.out);
    CHECK_GE(piece.offset, 0) << tensor.name;
    CHECK_LE(end, tensor.bytes) << tensor.name;
    if (!checksums_) {
      LS_RETURN_IF_ERROR(ReadAt(path_, file_.get(), data + piece.offset, piece.out));
      continue;
    }
    for (int64_t at = piece.offset; at < end;) {
      if (at / kChecksumBlockBytes != number) {
        number = at / kChecksumBlockBytes;
        const int64_t begin = number * kChecksumBlockBytes;
        block.resize(static_cast<size_t>(std::min(kChecksumBlockBytes, tensor.bytes - begin)));
        LS_RETURN_IF_ERROR(ReadAt(path_, file_.get(), data + begin, block));
        LS_RETURN_IF_ERROR(CheckBlock(tensor, number, block));
      }
      const int64_t in_block = at - number * kChecksumBlockBytes;
      const int64_t count = std::min(end - at, std::ssize(block) - in_block);
      std::memcpy(piece.out.data() + (at - piece.offset), block.data() + in_block,
                  static_cast<size_t>(count));
      at += count;
    }
  }
  return absl::OkStatus();
}

absl::Status SafetensorsReader::CheckBlock(const SafetensorsTensor& tensor, int64_t number,
                                           std::span<const std::byte> block) const {
  const int64_t size = *SafetensorsElementBytes(tensor.dtype);
  const int64_t begin = number * kChecksumBlockBytes;
  const size_t index = index_.at(tensor.name);
  if (ChecksumOf(size, begin / size, block) == checksums_->Block(index, number)) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(
      "\"", path_, "\" is damaged: bytes ", begin, " to ", begin + std::ssize(block) - 1,
      " of tensor '", tensor.name, "' do not have the checksum that was saved with them", remedy_));
}

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Open(
    const std::string& path, std::vector<SafetensorsTensor> tensors,
    std::map<std::string, std::string> metadata, WithChecksums with_checksums) {
  SafetensorsHeader header{.tensors = std::move(tensors), .metadata = std::move(metadata)};
  std::optional<FileChecksums> checksums;
  std::string first_bytes;
  switch (with_checksums) {
    case WithChecksums::kNo:
      first_bytes = LayOutSafetensors(&header);
      break;
    case WithChecksums::kAsTensor:
      first_bytes = LayOutWithChecksums(&header, &checksums);
      break;
    case WithChecksums::kInMetadata:
      first_bytes = LayOutWithChecksumsInMetadata(&header, &checksums);
      break;
  }
  LS_ASSIGN_OR_RETURN(AtomicFileWriter file, AtomicFileWriter::Open(path));
  LS_RETURN_IF_ERROR(file.Append(first_bytes));
  SafetensorsWriter writer(std::move(file), std::move(header), with_checksums);
  writer.checksums_ = std::move(checksums);
  if (with_checksums == WithChecksums::kInMetadata) {
    writer.place_of_checksums_ = static_cast<int64_t>(PlaceOfChecksums(first_bytes).value());
  }
  writer.SkipComplete();
  return writer;
}

absl::Status SafetensorsWriter::Append(const std::string& name, std::span<const std::byte> bytes) {
  if (bytes.empty()) return absl::OkStatus();  // an empty tensor, or an empty piece
  CHECK_LT(current_, header_.tensors.size()) << name << " comes after the last tensor";
  const SafetensorsTensor& tensor = header_.tensors[current_];
  CHECK_EQ(name, tensor.name) << "tensors come in the order in which they were declared";
  if (checksums_) checksums_->Add(current_, filled_, bytes);
  filled_ += static_cast<int64_t>(bytes.size());
  CHECK_LE(filled_, tensor.bytes) << "too many bytes for " << name;
  SkipComplete();
  return file_.Append({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

absl::Status SafetensorsWriter::Commit() {
  CHECK_EQ(current_, header_.tensors.size()) << header_.tensors[current_].name << " lacks bytes";
  if (with_checksums_ == WithChecksums::kAsTensor) {
    const auto bytes = std::as_bytes(std::span(checksums_->values()));
    LS_RETURN_IF_ERROR(file_.Append({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  } else if (with_checksums_ == WithChecksums::kInMetadata) {
    LS_RETURN_IF_ERROR(file_.Overwrite(place_of_checksums_, checksums_->ToHex()));
  }
  return file_.Commit();
}

void SafetensorsWriter::SkipComplete() {
  while (current_ < header_.tensors.size() && filled_ == header_.tensors[current_].bytes) {
    ++current_;
    filled_ = 0;
  }
}

}  // namespace lockstep
