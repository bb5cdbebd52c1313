#include "core/base/user_path.h"

#include <cstdlib>  // std::getenv
#include <filesystem>
#include <system_error>

namespace lockstep {

std::string UserPath(const std::string& path) {
  namespace fs = std::filesystem;
  const char* stands = std::getenv("BUILD_WORKING_DIRECTORY");
  std::error_code deleted;  // the current directory: then relative paths stay relative
  const fs::path here = stands != nullptr ? fs::path(stands) : fs::current_path(deleted);
  std::string users = (here / path).lexically_normal().string();
  while (users.size() > 1 && users.back() == '/') users.pop_back();
  return users;
}

}  // namespace lockstep
