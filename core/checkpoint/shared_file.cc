#include "core/checkpoint/shared_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
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

// Closes what it holds.
class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  ~Descriptor() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  const int descriptor_;
};

}  // namespace

absl::Status SharedSafetensors::Make(const std::string& path,
                                     std::vector<SafetensorsTensor> tensors,
                                     std::map<std::string, std::string> metadata) {
  SafetensorsHeader header{.tensors = std::move(tensors), .metadata = std::move(metadata)};
  const std::string first_bytes = LayOutSafetensors(&header);
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) return Error(path, "made");
  int64_t size = static_cast<int64_t>(first_bytes.size());
  for (const SafetensorsTensor& tensor : header.tensors) size += tensor.bytes;
  if (ftruncate(file.get(), size) != 0) return Error(path, "given its size");
  return WriteAt(path, file.get(), 0, std::as_bytes(std::span(first_bytes)));
}

absl::StatusOr<SharedSafetensors> SharedSafetensors::Open(
    const std::string& path, std::vector<SafetensorsTensor> tensors,
    std::map<std::string, std::string> metadata) {
  SafetensorsHeader header{.tensors = std::move(tensors), .metadata = std::move(metadata)};
  const auto data_begin = static_cast<int64_t>(LayOutSafetensors(&header).size());
  const int descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return Error(path, "opened; all ranks must see the run directory");
  return SharedSafetensors(path, descriptor, std::move(header), data_begin);
}

SharedSafetensors::SharedSafetensors(SharedSafetensors&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      header_(std::move(other.header_)),
      data_begin_(other.data_begin_) {}

SharedSafetensors::~SharedSafetensors() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status SharedSafetensors::Write(size_t index, int64_t offset,
                                      std::span<const std::byte> bytes) {
  const SafetensorsTensor& tensor = header_.tensors[index];
  CHECK_LE(offset + static_cast<int64_t>(bytes.size()), tensor.bytes) << tensor.name;
  return WriteAt(path_, descriptor_, data_begin_ + tensor.begin + offset, bytes);
}

absl::Status SharedSafetensors::Close() {
  if (fsync(descriptor_) != 0) return Error(path_, "forced to the disk");
  close(std::exchange(descriptor_, -1));
  return absl::OkStatus();
}

}  // namespace lockstep
