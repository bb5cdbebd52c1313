#include "core/checkpoint/safetensors.h"

#include <fcntl.h>     // open
#include <sys/stat.h>  // fstat
#include <unistd.h>    // close, pread

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

absl::Status Unsound(const std::string& path, const std::string& what) {
  return InvalidArgument("\"", path, "\" is no sound safetensors file: ", what);
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
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return ReadError(path, errno);
  SafetensorsReader reader(path, descriptor);  // closes the file, also on errors
  struct stat info;
  if (fstat(descriptor, &info) != 0) return ReadError(path, errno);
  if (!S_ISREG(info.st_mode)) return Unsound(path, "it is a directory or a device");

  const int64_t file_bytes = info.st_size;
  if (file_bytes < kLengthBytes) {
    return Unsound(path, absl::StrCat("it has only ", file_bytes, " bytes"));
  }
  uint64_t header_bytes = 0;
  LS_RETURN_IF_ERROR(
      ReadAt(path, descriptor, 0, std::as_writable_bytes(std::span(&header_bytes, 1))));
  if (header_bytes > static_cast<uint64_t>(file_bytes - kLengthBytes)) {
    return Unsound(path, absl::StrCat("its header should have ", header_bytes,
                                      " bytes, but the whole file has ", file_bytes));
  }
  if (header_bytes > static_cast<uint64_t>(kMaxSafetensorsHeaderBytes)) {
    return Unsound(path, absl::StrCat("its header has ", header_bytes, " bytes, more than the ",
                                      kMaxSafetensorsHeaderBytes, " that the format allows"));
  }
  std::string json(header_bytes, '\0');
  LS_RETURN_IF_ERROR(
      ReadAt(path, descriptor, kLengthBytes, std::as_writable_bytes(std::span(json))));
  reader.data_begin_ = kLengthBytes + static_cast<int64_t>(header_bytes);
  LS_ASSIGN_OR_RETURN(reader.header_,
                      ParseSafetensorsHeader(json, file_bytes - reader.data_begin_, path));
  for (size_t i = 0; i < reader.tensors().size(); ++i) {
    reader.index_.emplace(reader.tensors()[i].name, i);
  }
  return reader;
}

SafetensorsReader::SafetensorsReader(std::string path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {}

SafetensorsReader::SafetensorsReader(SafetensorsReader&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      data_begin_(other.data_begin_),
      header_(std::move(other.header_)),
      index_(std::move(other.index_)) {}

SafetensorsReader& SafetensorsReader::operator=(SafetensorsReader&& other) noexcept {
  path_ = std::move(other.path_);
  std::swap(descriptor_, other.descriptor_);  // the other one closes what was ours
  data_begin_ = other.data_begin_;
  header_ = std::move(other.header_);
  index_ = std::move(other.index_);
  return *this;
}

SafetensorsReader::~SafetensorsReader() {
  if (descriptor_ >= 0) close(descriptor_);
}

const SafetensorsTensor* SafetensorsReader::Find(const std::string& name) const {
  const auto position = index_.find(name);
  return position == index_.end() ? nullptr : &header_.tensors[position->second];
}

absl::Status SafetensorsReader::Read(const SafetensorsTensor& tensor, std::span<std::byte> out,
                                     int64_t offset) const {
  CHECK_GE(offset, 0) << tensor.name;
  CHECK_LE(offset + static_cast<int64_t>(out.size()), tensor.bytes) << tensor.name;
  return ReadAt(path_, descriptor_, data_begin_ + tensor.begin + offset, out);
}

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Open(
    const std::string& path, std::vector<SafetensorsTensor> tensors,
    std::map<std::string, std::string> metadata) {
  SafetensorsHeader header{.tensors = std::move(tensors), .metadata = std::move(metadata)};
  const std::string first_bytes = LayOutSafetensors(&header);
  LS_ASSIGN_OR_RETURN(AtomicFileWriter file, AtomicFileWriter::Open(path));
  LS_RETURN_IF_ERROR(file.Append(first_bytes));
  SafetensorsWriter writer(std::move(file), std::move(header));
  writer.SkipComplete();
  return writer;
}

absl::Status SafetensorsWriter::Append(const std::string& name, std::span<const std::byte> bytes) {
  if (bytes.empty()) return absl::OkStatus();  // an empty tensor, or an empty piece
  CHECK_LT(current_, header_.tensors.size()) << name << " comes after the last tensor";
  const SafetensorsTensor& tensor = header_.tensors[current_];
  CHECK_EQ(name, tensor.name) << "tensors come in the order in which they were declared";
  filled_ += static_cast<int64_t>(bytes.size());
  CHECK_LE(filled_, tensor.bytes) << "too many bytes for " << name;
  SkipComplete();
  return file_.Append({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

absl::Status SafetensorsWriter::Commit() {
  CHECK_EQ(current_, header_.tensors.size()) << header_.tensors[current_].name << " lacks bytes";
  return file_.Commit();
}

void SafetensorsWriter::SkipComplete() {
  while (current_ < header_.tensors.size() && filled_ == header_.tensors[current_].bytes) {
    ++current_;
    filled_ = 0;
  }
}

}  // namespace lockstep
