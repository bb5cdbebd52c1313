// Colours for what a picture has several of: ranks, kinds of work.

#pragma once

#include <string>

namespace lockstep {

inline constexpr int kColours = 16;

// "#2f6fde": for lines, dark enough to be seen on white. So many, neighbours easy to tell apart;
// then they repeat.
std::string Colour(int index);

// The same with a share of white, by default so pale that dark text reads on it.
std::string Tint(int index, double white = 0.8);

// Attributes of a shape: its ground in a tint and its edge in the colour.
std::string FilledWith(int index, double white = 0.8);

// What a rank does with its time, by one name and in one colour in all pictures and charts.
struct WorkKind {
  const char* name;
  int colour;
};
inline constexpr WorkKind kForwardWork = {"forward", 0};
inline constexpr WorkKind kBackwardWork = {"backward", 1};
inline constexpr WorkKind kInputGradientWork = {"input gradient", 4};  // the halves of a backward,
inline constexpr WorkKind kWeightGradientWork = {"weight gradient",
                                                 7};  // where a schedule splits it
inline constexpr WorkKind kOptimizerWork = {"optimizer", 2};
inline constexpr WorkKind kDataWork = {"data", 6};
inline constexpr WorkKind kBubbleWork = {"bubble", 9};  // waiting for other stages

}  // namespace lockstep
