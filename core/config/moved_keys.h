#pragma once

#include "absl/status/status.h"
#include "core/config/config.h"

namespace lockstep {

// InvalidArgument for keys that earlier versions knew under another name, with the names that they
// have now.
absl::Status CheckMovedKeys(const Config& config);

}  // namespace lockstep
