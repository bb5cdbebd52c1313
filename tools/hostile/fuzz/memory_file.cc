#include "tools/hostile/fuzz/memory_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace lockstep {

MemoryFile::MemoryFile(std::string_view contents)
    : file_(memfd_create("input", MFD_CLOEXEC)),
      path_(absl::StrCat("/proc/self/fd/", file_.get())) {
  PCHECK(file_.is_open());
  while (!contents.empty()) {
    const ssize_t written = write(file_.get(), contents.data(), contents.size());
    PCHECK(written > 0);
    contents.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace lockstep
