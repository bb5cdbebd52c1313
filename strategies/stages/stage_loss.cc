#include "strategies/stages/stage_loss.h"

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/comm/host_numbers.h"

namespace lockstep {
namespace {

constexpr char kLabel[] = "loss";

}  // namespace

double ShareLoss(LocalModel& local_model, Communicator& shards, Communicator& stages, int from) {
  double loss = local_model.has_last() ? local_model.MeanLoss(&shards) : 0;
  if (stages.size() == 1) return loss;
  StepTimer::Scope scope(local_model.rank().timer, Phase::kBubble);
  ThrowIfError(BroadcastNumbers(stages, absl::MakeSpan(&loss, 1), from, kLabel));
  return loss;
}

void AddLossTraffic(const LocalModel& local_model, const Communicator& shards,
                    const Communicator& stages, int from, CostPrediction& prediction) {
  if (local_model.has_last()) {
    prediction.AddCollective(Operation::kAllReduce, kLabel, shards.size(), sizeof(ExactSum));
  }
  if (stages.size() == 1) return;
  // Around a ring from the last stage, whose predecessor has nobody left to tell.
  const bool tells = (stages.rank() + 1) % stages.size() != from;
  prediction.AddTraffic(Operation::kBroadcast, kLabel, tells ? sizeof(double) : 0.0);
}

}  // namespace lockstep
