#include "core/run/strategy/expert_loads.h"

#include <utility>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/comm/host_numbers.h"
#include "core/nn/experts.h"

namespace lockstep {
namespace {

constexpr char kLabel[] = "expert load";

}  // namespace

std::vector<ExpertLoadOfLayer> ExpertLoads(const LocalModel& local_model) {
  std::vector<ExpertLoadOfLayer> loads;
  for (const RunningStatistics* layer : local_model.model().Statistics()) {
    const auto* load = dynamic_cast<const ExpertLoad*>(layer);
    if (load == nullptr || load->frozen) continue;
    std::vector<float> fractions(static_cast<size_t>(load->channels));
    if (load->mean.defined()) local_model.rank().kernels.CopyToHost(load->mean, fractions.data());
    loads.push_back({.layer = load->name, .fractions = std::move(fractions)});
  }
  return loads;
}

std::vector<ExpertLoadOfLayer> ShareExpertLoads(const LocalModel& local_model,
                                                Communicator& stages) {
  std::vector<ExpertLoadOfLayer> loads = ExpertLoads(local_model);
  if (stages.size() == 1) return loads;
  for (ExpertLoadOfLayer& load : loads) {
    ThrowIfError(AllReduceNumbers(stages, absl::MakeSpan(load.fractions), ReduceOp::kSum, kLabel));
  }
  return loads;
}

void AddExpertLoadTraffic(const LocalModel& local_model, const Communicator& stages,
                          CostPrediction& prediction) {
  double bytes = 0;
  for (const RunningStatistics* layer : local_model.model().Statistics()) {
    const auto* load = dynamic_cast<const ExpertLoad*>(layer);
    if (load != nullptr && !load->frozen) {
      bytes += static_cast<double>(load->channels) * sizeof(float);
    }
  }
  if (bytes > 0) {
    prediction.AddCollective(Operation::kAllReduce, kLabel, stages.size(), bytes);
  }
}

}  // namespace lockstep
