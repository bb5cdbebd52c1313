#include "strategies/stages/tied_parameters.h"

#include <utility>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr char kGradients[] = "tied gradients";
constexpr char kValues[] = "tied parameters";

}  // namespace

TiedParameters::TiedParameters(LocalModel& local_model, const StagePlan& plan, Communicator& ranks,
                               ValuesOf values_of)
    : local_model_(local_model), values_of_(std::move(values_of)) {
  const std::vector<ModelTensor>& tensors = local_model.layout().tensors();
  const auto rank_of = [&](size_t tensor) {
    return plan.rank_of_stage[plan.StageOfBlock(tensors[tensor].block)];
  };
  const std::vector<Parameter*> parameters = local_model.model().Parameters();
  bool any = false;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!tensors[i].tied_to) continue;
    Parameter* tied = parameters[i];
    const int from = rank_of(i), to = rank_of(*tensors[i].tied_to);
    if (from == to) continue;
    any = true;
    if (ranks.rank() == to) ties_.push_back({tied->tied_to, tied, from, true, Work()});
    if (ranks.rank() == from) ties_.push_back({tied->tied_to, tied, to, false, Work()});
  }
  if (!any) return;
  auto group = ranks.Split(0, ranks.rank(), "tied");
  ThrowIfError(group.status());
  group_ = *std::move(group);
}

void TiedParameters::BeginStep() {
  for (Tie& tie : ties_) {
    if (tie.owns && tie.is_trained())
      tie.gradient = group_->Recv(tie.tied->gradient, tie.other, kGradients);
  }
}

void TiedParameters::SendGradients() {
  for (Tie& tie : ties_) {
    if (tie.owns || !tie.is_trained()) continue;
    // Negative zero is what changes nothing that it is added to, not even the sign of a zero.
    if (!tie.tied->has_gradient()) local_model_.rank().kernels.Fill(tie.tied->gradient, -0.0f);
    tie.gradient = group_->Send(tie.tied->gradient, tie.other, kGradients);
  }
}

void TiedParameters::AwaitGradients(const Parameter& owner) {
  for (Tie& tie : ties_) {
    if (tie.owner != &owner || !tie.is_trained()) continue;
    StepTimer::Scope scope(local_model_.rank().timer, Phase::kBubble);
    ThrowIfError(tie.gradient.Wait());
    tie.tied->MarkGradient();
  }
}

void TiedParameters::AwaitSent() {
  for (Tie& tie : ties_) {
    if (!tie.owns && tie.is_trained()) ThrowIfError(tie.gradient.Wait());
  }
}

void TiedParameters::SendValues() {
  Send([](const Tie&) { return true; });
}

void TiedParameters::SendUpdates() {
  Send([](const Tie& tie) { return tie.is_trained(); });
}

void TiedParameters::Send(const std::function<bool(const Tie&)>& chosen) {
  std::vector<Work> works;
  for (const Tie& tie : ties_) {
    if (!chosen(tie)) continue;
    works.push_back(tie.owns ? group_->Send(values_of_(*tie.owner), tie.other, kValues)
                             : group_->Recv(values_of_(*tie.tied), tie.other, kValues));
  }
  ThrowIfError(WaitAll(absl::MakeSpan(works)));
}

void TiedParameters::AddTraffic(CostPrediction& prediction) const {
  double gradients = 0, values = 0;
  for (const Tie& tie : ties_) {
    if (!tie.is_trained()) continue;
    if (tie.owns) {
      values += static_cast<double>(values_of_(*tie.owner).bytes());
    } else {
      gradients +=
          static_cast<double>(tie.tied->held_shape().elements() * SizeOf(tie.tied->gradient_dtype));
    }
  }
  if (gradients > 0) prediction.traffic.push_back({Operation::kSend, kGradients, gradients});
  if (values > 0) prediction.traffic.push_back({Operation::kSend, kValues, values});
}

}  // namespace lockstep
