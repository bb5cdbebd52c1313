#pragma once

#include <string>

#include "tools/schedule/text.h"

namespace lockstep {

// An SVG document: a row a rank, a box an action, to scale; its colour is the kind, deeper for the
// later stages of a rank, its number the micro-batch, and under the pointer it says what it is and
// when. Equal schedules give equal bytes.
std::string Timeline(const TimedSchedule& timed);

}  // namespace lockstep
