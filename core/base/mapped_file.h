#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace lockstep {

// The contents of a file as memory that the system reads when it is looked at, and forgets when
// memory is short; processes and threads share it. The file must not be cut shorter meanwhile: to
// look at what is gone ends the program. Files that are replaced by a rename (core/base/file.h)
// stay as they were opened.
class MappedFile {
 public:
  // An error names the path and the reason, as ReadFile's do.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;  // empty: nothing is mapped
};

}  // namespace lockstep
