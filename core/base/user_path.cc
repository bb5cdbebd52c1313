#include "core/base/user_path.h"

#include <cstdlib>  // std::getenv
#include <filesystem>

namespace lockstep {

std::string UserPath(const std::string& path) {
  namespace fs = std::filesystem;
  const char* stands = std::getenv("BUILD_WORKING_DIRECTORY");
  return ((stands != nullptr ? fs::path(stands) : fs::current_path()) / path)
      .lexically_normal()
      .string();
}

}  // namespace lockstep
