#include "strategies/stages/stage_loss.h"

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/comm/host_numbers.h"

namespace lockstep {
namespace {

constexpr char kLabel[] = "loss";

}  // namespace

double ShareLoss(Stage& stage, Communicator& shards, Communicator& stages, int from) {
  double loss = stage.has_last() ? stage.SumLoss(shards) : 0;
  StepTimer::Scope scope(stage.rank().timer, Phase::kBubble);
  ThrowIfError(BroadcastNumbers(stages, absl::MakeSpan(&loss, 1), from, kLabel));
  return loss;
}

void AddLossTraffic(const Stage& stage, const Communicator& shards, const Communicator& stages,
                    int from, CostPrediction& prediction) {
  if (stage.has_last()) {
    const double n = shards.size();
    prediction.traffic.push_back(
        {Operation::kAllReduce, kLabel, 2 * (n - 1) / n * sizeof(ExactSum)});
  }
  // Around a ring from the last stage, whose predecessor has nobody left to tell.
  const bool tells = (stages.rank() + 1) % stages.size() != from;
  prediction.traffic.push_back({Operation::kBroadcast, kLabel, tells ? sizeof(double) : 0.0});
}

}  // namespace lockstep
