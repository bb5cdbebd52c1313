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

// By parameter, the stage that has it.
absl::flat_hash_map<const Parameter*, int> StageOf(const Model& model,
                                                   const std::vector<BlockRange>& ranges) {
  absl::flat_hash_map<const Parameter*, int> stage_of;
  for (size_t stage = 0; stage < ranges.size(); ++stage) {
    for (int64_t block = ranges[stage].begin; block < ranges[stage].end; ++block) {
      for (const Parameter* parameter : model.blocks[block]->Parameters()) {
        stage_of[parameter] = static_cast<int>(stage);
      }
    }
  }
  return stage_of;
}

}  // namespace

TiedParameters::TiedParameters(Stage& stage, const std::vector<BlockRange>& ranges,
                               Communicator& stages)
    : stage_(stage) {
  const auto stage_of = StageOf(stage.model(), ranges);
  bool any = false;
  for (Parameter* tied : stage.model().Parameters()) {
    if (tied->tied_to == nullptr) continue;
    const int from = stage_of.at(tied), to = stage_of.at(tied->tied_to);
    if (from == to) continue;
    // Backward reaches the tied one first: its gradient never has to be waited for.
    CHECK_LT(to, from) << tied->name << " is tied to a parameter of a later stage";
    any = true;
    if (stages.rank() == to) ties_.push_back({tied->tied_to, tied, from, true, Work()});
    if (stages.rank() == from) ties_.push_back({tied->tied_to, tied, to, false, Work()});
  }
  if (!any) return;
  auto group = stages.Split(0, stages.rank(), "tied");
  ThrowIfError(group.status());
  group_ = *std::move(group);
}

void TiedParameters::BeginStep() {
  for (Tie& tie : ties_) {
    if (tie.owns) tie.gradient = group_->Recv(tie.tied->gradient, tie.other, kGradients);
  }
}

void TiedParameters::SendGradients() {
  for (Tie& tie : ties_) {
    if (tie.owns) continue;
    // Negative zero is what changes nothing that it is added to, not even the sign of a zero.
    if (!tie.tied->has_gradient()) stage_.rank().kernels.Fill(tie.tied->gradient, -0.0f);
    tie.gradient = group_->Send(tie.tied->gradient, tie.other, kGradients);
  }
}

void TiedParameters::AwaitGradients(const Parameter& owner) {
  for (Tie& tie : ties_) {
    if (tie.owner != &owner) continue;
    StepTimer::Scope scope(stage_.rank().timer, Phase::kBubble);
    ThrowIfError(tie.gradient.Wait());
    tie.tied->MarkGradient();
  }
}

void TiedParameters::AwaitSent() {
  for (Tie& tie : ties_) {
    if (!tie.owns) ThrowIfError(tie.gradient.Wait());
  }
}

void TiedParameters::SendValues() {
  std::vector<Work> works;
  for (const Tie& tie : ties_) {
    works.push_back(tie.owns ? group_->Send(tie.owner->value, tie.other, kValues)
                             : group_->Recv(tie.tied->value, tie.other, kValues));
  }
  ThrowIfError(WaitAll(absl::MakeSpan(works)));
}

void TiedParameters::AddTraffic(CostPrediction& prediction) const {
  double gradients = 0, values = 0;
  for (const Tie& tie : ties_) {
    if (tie.owns) {
      values += static_cast<double>(tie.owner->value.bytes());
    } else {
      gradients +=
          static_cast<double>(tie.tied->held_shape().elements() * SizeOf(tie.tied->gradient_dtype));
    }
  }
  if (gradients > 0) prediction.traffic.push_back({Operation::kSend, kGradients, gradients});
  if (values > 0) prediction.traffic.push_back({Operation::kSend, kValues, values});
}

}  // namespace lockstep
