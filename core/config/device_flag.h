#pragma once

#include <string>

#include "absl/flags/declare.h"

// "cpu" or "cuda": where to compute. Trainers and what tests their curves are one binary in
// //tools/portable:lockstep, where a flag is defined once.
ABSL_DECLARE_FLAG(std::string, device);

namespace lockstep {

// For ProgramFlags::files.
inline constexpr char kDeviceFlagFile[] = "core/config/device_flag.cc";

}  // namespace lockstep
