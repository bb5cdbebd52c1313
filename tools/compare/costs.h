// What the time of a step and the memory of a rank are made of, as tables and charts show it.

#pragma once

#include "tools/draw/palette.h"
#include "tools/experiment/run_record.h"

namespace lockstep {

// What both have, such as communication, has one colour in all charts.
struct TimeCategory {
  const char* name;     // in a run's summary
  const char* title;    // in a report
  int colour;           // tools/draw/palette.h
  bool beside = false;  // happened beside the others, which add up to the step
};

inline constexpr TimeCategory kTimeCategories[] = {
    {"forward", kForwardWork.name, kForwardWork.colour},
    {"backward", kBackwardWork.name, kBackwardWork.colour},
    {"communication_exposed", "comm. exposed", 3},
    {.name = "communication_overlapped", .title = "comm. overlapped", .colour = 12, .beside = true},
    {"optimizer", kOptimizerWork.name, kOptimizerWork.colour},
    {"data", kDataWork.name, kDataWork.colour},
    {"bubble", kBubbleWork.name, kBubbleWork.colour},
    {"other", "other", 5}};

// Seconds of a step, mean over ranks; 0 where the run knows no such category.
inline double Spent(const RunRecord& run, const TimeCategory& category) {
  const auto found = run.time.find(category.name);
  return found == run.time.end() ? 0 : found->second;
}

// A class of memory.
struct MemoryCategory {
  const char* name;   // in a run's summary and trace
  const char* title;  // in a report
  int colour;
};

inline constexpr MemoryCategory kMemoryCategories[] = {
    {"parameters", "parameters", 0},           {"gradients", "gradients", 1},
    {"optimizer_state", "optimizer state", 2}, {"activations", "activations", 4},
    {"communication", "communication", 3},     {"workspace", "workspace", 5}};

}  // namespace lockstep
