#pragma once

#include <string>

namespace lockstep {

// `path` from where the user stands, also under `bazel run`, which starts programs elsewhere; an
// absolute one as it is.
std::string UserPath(const std::string& path);

}  // namespace lockstep
