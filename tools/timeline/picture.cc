#include "tools/timeline/picture.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/draw/lanes.h"

namespace lockstep {
namespace {

constexpr double kRowsWidth = 900;

// "step 3 took 41.2 ms; waiting for other stages: rank 0 52 %, rank 1 48 %"
std::string Summary(const StepTrace& trace) {
  std::string text = absl::StrFormat("step %d took %.1f ms; waiting for other stages:", trace.step,
                                     trace.seconds * 1e3);
  for (size_t rank = 0; rank < trace.ranks.size(); ++rank) {
    double waited = 0;
    for (const StepTrace::Phase& phase : trace.ranks[rank].phases) {
      if (phase.work == &kBubbleWork) waited += phase.end - phase.begin;
    }
    absl::StrAppendFormat(&text, "%s rank %d %.0f %%", rank == 0 ? "" : ",", rank,
                          100 * waited / trace.seconds);
  }
  return text;
}

}  // namespace

std::string TimelinePicture(const StepTrace& trace, const std::string& title) {
  Lanes lanes = {.title = title,
                 .subtitle = Summary(trace),
                 .total = trace.seconds * 1e3,
                 .unit = " ms",
                 .width = kRowsWidth};
  for (const StepTrace::Rank& rank : trace.ranks) {
    std::vector<Lanes::Bar>& bars = lanes.ranks.emplace_back();
    for (const StepTrace::Phase& phase : rank.phases) {
      // Waiting, for data too, is what the bars leave free.
      if (phase.work == &kDataWork || phase.work == &kBubbleWork) continue;
      const double begin = phase.begin * 1e3, end = phase.end * 1e3;
      bars.push_back(
          {.begin = begin,
           .end = end,
           .work = phase.work,
           .number = phase.micro_batch < 0 ? "" : absl::StrCat(phase.micro_batch),
           .tooltip = absl::StrFormat("%s, %.2f to %.2f ms", LabelOf(phase), begin, end)});
    }
  }
  return SvgOf(lanes);
}

}  // namespace lockstep
