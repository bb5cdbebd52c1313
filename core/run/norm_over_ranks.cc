#include "core/run/norm_over_ranks.h"

#include <cstdint>
#include <utility>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/comm/host_numbers.h"

namespace lockstep {
namespace {

constexpr char kLabel[] = "norm";

using Axes = std::vector<Communicator*>;

// One axis after the other: largest magnitudes and the bins of SquareSum have no order of sums.
template <typename T>
void Reduce(const Axes& axes, absl::Span<T> values, ReduceOp op) {
  for (Communicator* axis : axes) ThrowIfError(AllReduceNumbers(*axis, values, op, kLabel));
}

}  // namespace

NormReduction NormOverRanks(const Axes& axes) {
  Axes divided = axes;
  std::erase_if(divided, [](const Communicator* axis) { return axis->size() == 1; });
  if (divided.empty()) return {};
  return {.max =
              [divided](float largest) {
                Reduce(divided, absl::MakeSpan(&largest, 1), ReduceOp::kMax);
                return largest;
              },
          .sum =
              [divided](SquareSum sum) {
                Reduce(divided, absl::MakeSpan(sum.bins), ReduceOp::kSum);
                return sum;
              }};
}

void AddNormTraffic(const Axes& axes, CostPrediction& prediction) {
  for (const Communicator* axis : axes) {
    if (axis->size() == 1) continue;
    prediction.AddCollective(Operation::kAllReduce, kLabel, axis->size(),
                             sizeof(float) + 3 * sizeof(double));
  }
}

}  // namespace lockstep
