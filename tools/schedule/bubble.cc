#include "tools/schedule/bubble.h"

namespace lockstep {

std::optional<BubbleFormula> BubbleInClosedForm(const Schedule& schedule, const StageCosts& costs) {
  const auto ranks = static_cast<double>(schedule.ranks.size());
  const double others = ranks - 1, micro_batches = schedule.micro_batches;
  if (schedule.name == "gpipe" || schedule.name == "1f1b") {
    return BubbleFormula{"(p-1)/(m+p-1)", others / (micro_batches + others)};
  }
  if (schedule.name == "layerwise") return BubbleFormula{"(p-1)/p", others / ranks};
  if (schedule.name == "interleaved_1f1b") {
    const double stages = schedule.stages() / ranks;
    return BubbleFormula{"(p-1)/(vm+p-1)", others / (stages * micro_batches + others)};
  }
  if (schedule.name == "zb_h1" && micro_batches >= ranks) {
    const double wait = others * (costs.forward + costs.input_gradient - costs.weight_gradient);
    const double work =
        micro_batches * (costs.forward + costs.input_gradient + costs.weight_gradient);
    return BubbleFormula{"(p-1)(F+I-W)/(m(F+I+W)+(p-1)(F+I-W))", wait / (work + wait)};
  }
  const bool are_equal =
      costs.forward == costs.input_gradient && costs.forward == costs.weight_gradient;
  if (are_equal && ((schedule.name == "zb_v" && micro_batches >= 2 * ranks - 1) ||
                    schedule.name == "dualpipe_v")) {
    return BubbleFormula{"(p-1)/(6m+p-1)", others / (6 * micro_batches + others)};
  }
  return std::nullopt;
}

}  // namespace lockstep
