#include "core/nn/experts.h"

#include <vector>

#include "core/autograd/operations.h"
#include "core/base/status.h"
#include "core/nn/context.h"

namespace lockstep {

void ExpertLoad::Materialize(Kernels& kernels) {
  RunningStatistics::Materialize(kernels);
  kernels.Fill(variance, 0);
}

void ExpertLoad::Count(Kernels& kernels, const ExpertRows& rows) {
  std::vector<float> counts(rows.counts().begin(), rows.counts().end());
  const Tensor uploaded = kernels.Empty({channels}, DType::kF32, MemoryClass::kWorkspace);
  kernels.CopyFromHost(counts.data(), uploaded);
  AddToSums(kernels, uploaded, uploaded, /*weight=*/1);
}

void ExpertLoad::Update(Kernels& kernels, double /*weight*/) {
  std::vector<float> counts(static_cast<size_t>(3 * channels)), load, bias;
  load.resize(static_cast<size_t>(channels));
  bias.resize(static_cast<size_t>(channels));
  kernels.CopyToHost(sums, counts.data());
  kernels.CopyToHost(variance, bias.data());
  double all = 0;
  for (int64_t i = 0; i < channels; ++i) all += counts[i];
  const double mean = all / static_cast<double>(channels);
  for (int64_t i = 0; i < channels; ++i) {
    load[i] = all > 0 ? static_cast<float>(counts[i] / all) : 0.0f;
    if (counts[i] != mean)
      bias[i] += static_cast<float>(counts[i] < mean ? bias_rate_ : -bias_rate_);
  }
  kernels.CopyFromHost(load.data(), this->mean);
  kernels.CopyFromHost(bias.data(), variance);
  Clear();
}

RouterLayer::RouterLayer(std::string name, int64_t width, const ExpertsOptions& options, Init init)
    : Module(std::move(name)),
      options_(options),
      weight_(AddParameter("weight", {options.routing.experts, width}, init)),
      load_(AddStatistics(std::make_unique<ExpertLoad>(Module::name(), options.routing.experts,
                                                       options.bias_rate))) {}

RoutedRows RouterLayer::operator()(Pass& pass, const Variable& x) {
  const Variable logits = Linear(pass.tape, x, weight_, nullptr);
  const bool trains = pass.training();
  RowRanks ranks, run_ranks;
  if (pass.sequence != nullptr) {
    run_ranks = {.size = pass.sequence->size(),
                 .index = pass.sequence->index(),
                 .gather = [sequence = pass.sequence](const std::vector<int64_t>& numbers) {
                   return sequence->GatherNumbers(numbers);
                 }};
  }
  if (trains && pass.context != nullptr && options_.counts_choices()) {
    ranks = {.size = pass.context->size(),
             .index = pass.context->index(),
             .gather = [context = pass.context](const std::vector<int64_t>& numbers) {
               return context->GatherNumbers(numbers);
             }};
  }
  // The auxiliary loss of a micro-batch weighs as much as the losses of its tokens.
  const double weight = static_cast<double>(pass.loss_factor) *
                        static_cast<double>(x.shape().rows() * run_ranks.size * ranks.size);
  RoutedRows routed =
      Route(pass.tape, logits,
            {.routing = options_.routing,
             .bias = load_.bias(),
             .capacity_factor = trains ? options_.capacity_factor : 0,
             .auxiliary = static_cast<float>(trains ? options_.auxiliary_loss * weight : 0),
             .ranks = ranks,
             .run_ranks = run_ranks,
             .notes = pass.routing});
  if (trains && !load_.frozen && !pass.is_recomputing()) load_.Count(pass.kernels(), *routed.rows);
  return routed;
}

ExpertsLayer::ExpertsLayer(std::string name, int64_t width, const ExpertsOptions& options,
                           Init init, Init last_init)
    : Module(std::move(name)),
      experts_(options.routing.experts),
      chosen_(options.routing.chosen),
      hidden_(options.hidden),
      gate_up_(AddChild<ExpertGateUpLayer>("gate_up", experts_, hidden_, width, init)),
      down_(AddChild<ExpertDownLayer>("down", experts_, hidden_, width, last_init)) {}

// Ranks along tp sum what they have of each dispatched row on the rank of its token, so that what
// they send does not depend on the choice.
Variable ExpertsLayer::operator()(Pass& pass, const Variable& x, const RoutedRows& routed,
                                  const Variable& residual) {
  Tape& tape = pass.tape;
  Variable sent = cut_.Enter(pass, Dispatch(tape, x, routed.rows));
  Variable made;
  if (pass.sequence == nullptr) {
    made = Make(pass, sent, routed.rows);
  } else {
    const ExpertRows& own = *routed.rows;
    const auto gathered = std::make_shared<const ReceivedRows>(
        pass.kernels(), pass.sequence->size(), experts_, own.leaves(), own.counts_of_run_ranks(),
        own.dispatched());
    sent = OrderArrivals(tape, sent, gathered);
    made = BackToArrivals(tape, Make(pass, sent, gathered), gathered);
  }
  return Combine(tape, cut_.Leave(pass, std::move(made)), routed, residual);
}

Variable ExpertsLayer::Make(Pass& pass, const Variable& sent, const SharedRanges& rows) {
  if (group_ == nullptr) return Run(pass.tape, sent, rows);
  const ExpertGroup::Received received = group_->ToExperts(pass, name(), sent, rows);
  return group_->ToTokens(pass, Run(pass.tape, received.x, received.rows), received);
}

Variable ExpertsLayer::Run(Tape& tape, const Variable& x, const SharedRanges& rows) {
  return down_.OfSwiGlu(tape, gate_up_(tape, x, rows), rows);
}

absl::Status ExpertsLayer::CheckSplit(SplitStyle style, int count,
                                      const std::string& slices) const {
  if (style != SplitStyle::kColumn || hidden_ % count == 0) return absl::OkStatus();
  return InvalidArgument("layer '", name(), "' has ", hidden_,
                         " hidden features of an expert, which do not divide among ", count, " ",
                         slices);
}

void ExpertsLayer::CutFeatures(SplitStyle style, int features) {
  if (style != SplitStyle::kColumn || features == 1) return;
  cut_.features = features;
  cut_.style = style;
}

void ExpertsLayer::Split(SplitStyle style, SplitGroup& group) {
  if (style != SplitStyle::kColumn) return;
  cut_.style = style;
  cut_.group = &group;
}

void ExpertsLayer::DivideExperts(ExpertGroup& group) { group_ = &group; }

}  // namespace lockstep
