#include "strategies/stages/tied_parameters.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr char kGradients[] = "tied gradients";
constexpr char kValues[] = "tied parameters";

// By parameter, the rank that has it.
absl::flat_hash_map<const Parameter*, int> RankOf(const Model& model, const StagePlan& plan) {
  absl::flat_hash_map<const Parameter*, int> rank_of;
  for (int stage = 0; stage < plan.size(); ++stage) {
    for (int64_t block = plan.stages[stage].begin; block < plan.stages[stage].end; ++block) {
      for (const Parameter* parameter : model.blocks[block]->Parameters()) {
        rank_of[parameter] = plan.rank_of_stage[stage];
      }
    }
  }
  return rank_of;
}

}  // namespace

TiedParameters::TiedParameters(Stage& stage, const StagePlan& plan, Communicator& ranks,
                               ValuesOf values_of)
    : stage_(stage), values_of_(std::move(values_of)) {
  const auto rank_of = RankOf(stage.model(), plan);
  bool any = false;
  for (Parameter* tied : stage.model().Parameters()) {
    if (tied->tied_to == nullptr) continue;
    const int from = rank_of.at(tied), to = rank_of.at(tied->tied_to);
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
    if (!tie.tied->has_gradient()) stage_.rank().kernels.Fill(tie.tied->gradient, -0.0f);
    tie.gradient = group_->Send(tie.tied->gradient, tie.other, kGradients);
  }
}

void TiedParameters::AwaitGradients(const Parameter& owner) {
  for (Tie& tie : ties_) {
    if (tie.owner != &owner || !tie.is_trained()) continue;
    StepTimer::Scope scope(stage_.rank().timer, Phase::kBubble);
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
