// Colours for what a picture has several of: ranks, kinds of action.

#pragma once

#include <string>

namespace lockstep {

inline constexpr int kColours = 16;

// "#2f6fde": for lines, dark enough to be seen on white. So many, neighbours easy to tell apart;
// then they repeat.
std::string Colour(int index);

// The same with a share of white, by default so pale that dark text reads on it.
std::string Tint(int index, double white = 0.8);

}  // namespace lockstep
