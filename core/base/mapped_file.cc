#include "core/base/mapped_file.h"

#include <fcntl.h>     // O_RDONLY
#include <sys/mman.h>  // mmap
#include <sys/stat.h>  // fstat

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

absl::Status ReadError(const std::string& path, int error_number) {
  return absl::ErrnoToStatus(error_number, absl::StrCat("cannot read \"", path, "\""));
}

// Maps an open file, which stays mapped when it is closed.
absl::StatusOr<std::span<const std::byte>> Map(const std::string& path, int descriptor) {
  struct stat info;
  if (fstat(descriptor, &info) != 0) return ReadError(path, errno);
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return std::span<const std::byte>();  // nothing can be mapped
  void* memory = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) return ReadError(path, errno);
  return std::span(static_cast<const std::byte*>(memory), size);
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  LS_ASSIGN_OR_RETURN(const FileDescriptor file, OpenRegularFile(path, O_RDONLY));
  LS_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, Map(path, file.get()));
  return MappedFile(bytes);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, std::span<const std::byte>())) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);  // the other one unmaps what was ours
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace lockstep
