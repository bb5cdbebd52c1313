#include "core/checkpoint/shared_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

absl::Status Error(const std::string& path, const char* doing) {
  return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be ", doing));
}

absl::Status WriteAt(const std::string& path, int descriptor, int64_t offset,
                     std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(descriptor, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Error(path, "written");
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += written;
  }
  return absl::OkStatus();
}

// Bytes of a file's tensors together, that of checksums not among them.
int64_t DataBytes(const SafetensorsHeader& header) {
  return header.tensors.empty() ? 0 : header.tensors.back().begin + header.tensors.back().bytes;
}

}  // namespace

absl::Status SharedSafetensors::Make(const std::string& path,
                                     std::vector<SafetensorsTensor> tensors,
                                     std::map<std::string, std::string> metadata) {
  SafetensorsHeader header{.tensors = std::move(tensors), .metadata = std::move(metadata)};
  std::optional<FileChecksums> checksums;
  const std::string first_bytes = LayOutWithChecksums(&header, &checksums);
  LS_ASSIGN_OR_RETURN(const FileDescriptor file,
                      OpenRegularFile(path, O_WRONLY | O_CREAT | O_TRUNC));
  const auto size = static_cast<int64_t>(first_bytes.size() + DataBytes(header) +
                                         checksums->values().size() * sizeof(uint64_t));
  if (ftruncate(file.get(), size) != 0) return Error(path, "given its size");
  return WriteAt(path, file.get(), 0, std::as_bytes(std::span(first_bytes)));
}

absl::StatusOr<SharedSafetensors> SharedSafetensors::Open(
    const std::string& path, std::vector<SafetensorsTensor> tensors,
    std::map<std::string, std::string> metadata) {
  SafetensorsHeader header{.tensors = std::move(tensors), .metadata = std::move(metadata)};
  std::optional<FileChecksums> checksums;
  const auto data_begin = static_cast<int64_t>(LayOutWithChecksums(&header, &checksums).size());
  absl::StatusOr<FileDescriptor> file = OpenRegularFile(path, O_WRONLY);
  if (!file.ok()) return Annotate(file.status(), "all ranks must see the run directory");
  return SharedSafetensors(path, *std::move(file), std::move(header), *std::move(checksums),
                           data_begin);
}

absl::Status SharedSafetensors::Write(size_t index, int64_t offset,
                                      std::span<const std::byte> bytes) {
  const SafetensorsTensor& tensor = header_.tensors[index];
  CHECK_LE(offset + static_cast<int64_t>(bytes.size()), tensor.bytes) << tensor.name;
  checksums_.Add(index, offset, bytes);
  return WriteAt(path_, file_.get(), data_begin_ + tensor.begin + offset, bytes);
}

absl::Status SharedSafetensors::WriteChecksums() {
  return WriteAt(path_, file_.get(), data_begin_ + DataBytes(header_),
                 std::as_bytes(std::span(checksums_.values())));
}

absl::Status SharedSafetensors::Sync() {
  if (fsync(file_.get()) != 0) return Error(path_, "forced to the disk");
  return absl::OkStatus();
}

}  // namespace lockstep
