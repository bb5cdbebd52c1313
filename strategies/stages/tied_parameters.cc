#include "strategies/stages/tied_parameters.h"

#include <utility>

#include "absl/types/span.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

constexpr char kGradients[] = "tied gradients";
constexpr char kValues[] = "tied parameters";

}  // namespace

TiedParameters::TiedParameters(LocalModel& local_model, const StagePlan& plan, Communicator& ranks,
                               HeldTensors held)
    : local_model_(local_model), held_(std::move(held)), own_(ranks.rank()) {
  const std::vector<ModelTensor>& tensors = local_model.layout().tensors();
  const auto rank_of = [&](size_t tensor) {
    return plan.rank_of_stage[plan.StageOfBlock(tensors[tensor].block)];
  };
  const std::vector<Parameter*> parameters = local_model.model().Parameters();
  std::vector<Communicator::Route> routes;  // there and back, for each that is across
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!tensors[i].tied_to) continue;
    Parameter* tied = parameters[i];
    const int from = rank_of(i), to = rank_of(*tensors[i].tied_to);
    if (from != to) routes.insert(routes.end(), {{from, to}, {to, from}});
    if (to == own_) {
      ties_.push_back({tied->tied_to, tied, from, true});
      if (from == to || !tied->trainable) continue;
      const Tensor own = held_.gradient(*tied->tied_to);
      ties_.back().received =
          local_model.rank().kernels.Empty(own.shape(), own.dtype(), MemoryClass::kGradients);
    } else if (from == own_) {
      ties_.push_back({tied->tied_to, tied, to, false});
    }
  }
  if (routes.empty()) return;
  auto group = ranks.SplitBy([](int rank) { return Communicator::Choice{0, rank}; }, "tied");
  ThrowIfError(group.status());
  group_ = *std::move(group);
  ThrowIfError(group_->ConnectRoutes(routes));
}

void TiedParameters::AddGradients() {
  std::vector<Work> works(ties_.size());
  for (size_t i = 0; i < ties_.size(); ++i) {
    const Tie& tie = ties_[i];
    if (!tie.is_trained() || !IsAcross(tie)) continue;
    works[i] = tie.owns ? group_->Recv(tie.received, tie.other, kGradients)
                        : group_->Send(held_.gradient(*tie.tied), tie.other, kGradients);
  }
  for (size_t i = 0; i < ties_.size(); ++i) {
    const Tie& tie = ties_[i];
    if (!tie.is_trained()) continue;
    if (IsAcross(tie)) {
      StepTimer::Scope scope(local_model_.rank().timer, Phase::kBubble);
      ThrowIfError(works[i].Wait());
    }
    if (!tie.owns) continue;
    const Tensor sum = held_.gradient(*tie.owner);
    local_model_.rank().kernels.Add(sum, IsAcross(tie) ? tie.received : held_.gradient(*tie.tied),
                                    sum);
  }
}

void TiedParameters::Send(bool trained_only) {
  std::vector<Work> works;
  for (const Tie& tie : ties_) {
    if (!IsAcross(tie) || (trained_only && !tie.is_trained())) continue;
    works.push_back(tie.owns ? group_->Send(held_.values(*tie.owner), tie.other, kValues)
                             : group_->Recv(held_.values(*tie.tied), tie.other, kValues));
  }
  ThrowIfError(WaitAll(absl::MakeSpan(works)));
}

void TiedParameters::AddTraffic(CostPrediction& prediction) const {
  double gradients = 0, values = 0;
  for (const Tie& tie : ties_) {
    if (!IsAcross(tie) || !tie.is_trained()) continue;
    if (tie.owns) {
      values += static_cast<double>(held_.values(*tie.owner).bytes());
    } else {
      gradients += static_cast<double>(held_.gradient(*tie.tied).bytes());
    }
  }
  if (gradients > 0) prediction.traffic.push_back({Operation::kSend, kGradients, gradients});
  if (values > 0) prediction.traffic.push_back({Operation::kSend, kValues, values});
}

}  // namespace lockstep
