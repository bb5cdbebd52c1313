#include "tools/launch/file_watch.h"

#include <utility>

namespace lockstep {
namespace {

std::optional<struct stat> LookAt(const std::string& path) {
  struct stat found;
  if (stat(path.c_str(), &found) != 0) return std::nullopt;
  return found;
}

}  // namespace

FileWatch::FileWatch(std::string path) : path_(std::move(path)), before_(LookAt(path_)) {}

bool FileWatch::HasChanged() const {
  const std::optional<struct stat> now = LookAt(path_);
  if (!now) return false;
  if (!before_) return true;
  return now->st_dev != before_->st_dev || now->st_ino != before_->st_ino ||
         now->st_size != before_->st_size || now->st_mtim.tv_sec != before_->st_mtim.tv_sec ||
         now->st_mtim.tv_nsec != before_->st_mtim.tv_nsec;
}

}  // namespace lockstep
