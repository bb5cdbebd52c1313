// Colours of ranks.

#pragma once

#include <string>

namespace lockstep {

// "#2f6fde": for lines, dark enough to be seen on white. Sixteen; then they repeat.
std::string RankColour(int rank);

// The same, pale: for areas under dark text.
std::string RankTint(int rank);

}  // namespace lockstep
