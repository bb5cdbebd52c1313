#pragma once

#include <string>
#include <string_view>

#include "core/base/file.h"

namespace lockstep {

// A regular file that lies in memory, for parsers that take a path. Nothing is left of it when the
// process ends, however that ends.
class MemoryFile {
 public:
  // Requires a system that has memory for the contents.
  explicit MemoryFile(std::string_view contents);

  // Valid in this process, while the object lives.
  const std::string& path() const { return path_; }

 private:
  FileDescriptor file_;
  std::string path_;
};

}  // namespace lockstep
