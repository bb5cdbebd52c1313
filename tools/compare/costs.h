// What the time of a step and the memory of a rank are made of, as tables and charts show it.

#pragma once

#include <map>
#include <string>

#include "tools/draw/palette.h"

namespace lockstep {

// A phase of a step, or a class of memory. What both have, such as communication, has one colour in
// all charts.
struct Category {
  const char* name;     // in a run's summary and trace
  const char* title;    // in a report
  int colour;           // tools/draw/palette.h
  bool beside = false;  // of a phase: beside the others, which add up to the step
};

inline constexpr Category kTimeCategories[] = {
    {"forward", kForwardWork.name, kForwardWork.colour},
    {"backward", kBackwardWork.name, kBackwardWork.colour},
    {"communication_exposed", "comm. exposed", 3},
    {.name = "communication_overlapped", .title = "comm. overlapped", .colour = 12, .beside = true},
    {"optimizer", kOptimizerWork.name, kOptimizerWork.colour},
    {"data", kDataWork.name, kDataWork.colour},
    {"bubble", kBubbleWork.name, kBubbleWork.colour},
    {"other", "other", 5}};

inline constexpr Category kMemoryCategories[] = {
    {"parameters", "parameters", 0},           {"gradients", "gradients", 1},
    {"optimizer_state", "optimizer state", 2}, {"activations", "activations", 4},
    {"communication", "communication", 3},     {"workspace", "workspace", 5}};

// Seconds or bytes of a category; 0 where a run knows no such category.
inline double ValueOf(const std::map<std::string, double>& values, const Category& category) {
  const auto found = values.find(category.name);
  return found == values.end() ? 0 : found->second;
}

}  // namespace lockstep
