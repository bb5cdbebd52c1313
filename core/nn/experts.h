// The layers of a mixture of experts.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/autograd/experts.h"
#include "core/nn/expert_group.h"
#include "core/nn/expert_products_layer.h"
#include "core/nn/module.h"

namespace lockstep {

struct ExpertsOptions {
  Routing routing = {};
  int64_t hidden = 0;  // hidden features of an expert
  // Choices that an expert takes of a micro-batch: this times its even share, rounded up; the first
  // ones of all. 0: all of them ("dropless").
  double capacity_factor = 0;
  // Coefficient of the auxiliary load-balancing loss (RouteOptions), of which only the gradient is
  // computed: losses that are shown are without it.
  double auxiliary_loss = 0;
  // How far a step moves the bias of an expert that got more, or less, than the mean ("Auxiliary-
  // Loss-Free Load Balancing", Wang et al., 2024). 0: there is no bias.
  double bias_rate = 0;

  // Whether layers compare what experts got of a micro-batch.
  bool counts_choices() const { return capacity_factor > 0 || auxiliary_loss > 0; }
};

// How many choices of a step named each expert, dropped ones included, and the bias that follows
// from these counts. Buffers are name + ".running_load", each expert's fraction of the last step's
// choices, and ".running_bias". Counts are added in fp32: exact up to 2^24 for each expert.
class ExpertLoad final : public RunningStatistics {
 public:
  ExpertLoad(std::string layer_name, int64_t experts, double bias_rate)
      : RunningStatistics(std::move(layer_name), experts, /*update_momentum=*/1.0f),
        bias_rate_(bias_rate) {}

  BufferNames buffer_names() const override { return {".running_load", ".running_bias"}; }
  void Materialize(Kernels& kernels) override;
  // Adds the counts of one micro-batch.
  void Count(Kernels& kernels, const ExpertRows& rows);
  void Update(Kernels& kernels, double weight) override;
  bool can_follow_micro_batches() const override { return false; }

  // f32 [experts]; undefined where the choice has none.
  Tensor bias() const { return bias_rate_ > 0 ? variance : Tensor(); }

 private:
  double bias_rate_;
};

// Chooses the experts of each row of x [..., width]: logits x weight^T, weight [experts, width].
class RouterLayer : public Module {
 public:
  RouterLayer(std::string name, int64_t width, const ExpertsOptions& options, Init init);

  RoutedRows operator()(Pass& pass, const Variable& x);

  const ExpertLoad& load() const { return load_; }
  int64_t experts() const { return options_.routing.experts; }

 private:
  ExpertsOptions options_;
  Parameter& weight_;
  ExpertLoad& load_;
};

// The experts, each an MLP with SwiGLU. Split by column each rank has some of the hidden features
// of every expert, and gathers the dispatched rows of all ranks where these divide the tokens; of
// ranks that divide experts each has some of these.
class ExpertsLayer : public Module {
 public:
  ExpertsLayer(std::string name, int64_t width, const ExpertsOptions& options, Init init,
               Init last_init);

  // What the experts make of the rows of x [..., width], + residual.
  Variable operator()(Pass& pass, const Variable& x, const RoutedRows& routed,
                      const Variable& residual);

  int64_t experts() const { return experts_; }
  int64_t chosen() const { return chosen_; }  // experts of a row
  int64_t width() const { return gate_up_.weight().shape[1]; }

  absl::Status CheckSplit(SplitStyle style, int count, const std::string& slices) const override;
  void CutFeatures(SplitStyle style, int features) override;
  void Split(SplitStyle style, SplitGroup& group) override;
  void DivideExperts(ExpertGroup& group) override;

 private:
  // What the experts make of dispatched rows, wherever the experts are; but for the sum over ranks
  // that have some of the hidden features.
  Variable Make(Pass& pass, const Variable& sent, const SharedRanges& rows);
  Variable Run(Tape& tape, const Variable& x, const SharedRanges& rows);

  int64_t experts_, chosen_, hidden_;
  FeatureCut cut_;
  ExpertGroup* group_ = nullptr;  // null: all experts are here
  ExpertGateUpLayer& gate_up_;
  ExpertDownLayer& down_;
};

}  // namespace lockstep
