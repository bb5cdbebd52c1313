// All demos on one page.

#pragma once

#include <string>
#include <vector>

#include "tools/collectives/demo.h"

namespace lockstep {

// An HTML document, complete in itself: for each demo what the operation does, its picture, the
// data before and after, what it costs, and which strategy uses it. Follows the reader's light or
// dark setting.
std::string Page(const std::vector<Demo>& demos);

}  // namespace lockstep
