#include "foresight/shipped.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/user_path.h"

namespace lockstep {

std::string ShippedPath(const std::string& folder, const std::string& name) {
  if (absl::StrContains(name, '/') || absl::EndsWith(name, ".toml")) return UserPath(name);
  return absl::StrCat(folder, "/", name, ".toml");
}

}  // namespace lockstep
