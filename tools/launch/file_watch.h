#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>

namespace lockstep {

// Whether other processes have written a file since this object was made. The file is compared with
// itself: its times may be those of a file server, whose clock is another one than ours, and ours
// may have been put back meanwhile. What is written amid the file system's tick of time (4 ms on
// Linux' own ones), to as many bytes of the same file, is not seen.
class FileWatch {
 public:
  explicit FileWatch(std::string path);

  const std::string& path() const { return path_; }
  // False where there is no such file (any more).
  bool HasChanged() const;

 private:
  const std::string path_;
  const std::optional<struct stat> before_;  // nullopt: there was none
};

}  // namespace lockstep
