#pragma once

#include <string>

#include "tools/timeline/step_trace.h"

namespace lockstep {

// An SVG document: a row a rank, a bar a forward, backward or optimizer step, to scale, with the
// number of its micro-batch; what is left free is time in which the rank waited. Equal traces give
// equal bytes.
std::string TimelinePicture(const StepTrace& trace, const std::string& title);

}  // namespace lockstep
