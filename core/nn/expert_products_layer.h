// The products of a mixture of experts, as layers that adapters can be added to.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/autograd/experts.h"
#include "core/nn/adaptable_layer.h"
#include "core/nn/expert_group.h"
#include "core/tensor/slice.h"

namespace lockstep {

// One product of all experts: a weight [experts * parts * hidden, width], of which each expert has
// as many rows, and a pair of factors for each expert where the product is adapted. The factor that
// reaches the hidden features has the weight's rows and is split as the weight is; the other one is
// whole on every rank that has some hidden features of the expert, with a partial gradient there.
// Both have as many rows for each expert. They are `<layer>.lora_A` and `<layer>.lora_B`, which
// start as those of other layers do; adapters of experts have no dropout.
class ExpertProductsLayer : public AdaptableLayer {
 public:
  void AddAdapter(const Target& target, const AdapterShape& shape) final;
  bool adapters_drop_inputs() const final { return false; }

  void CutFeatures(SplitStyle style, int features) final;
  void Split(SplitStyle style, SplitGroup& group) final;
  void DivideExperts(ExpertGroup& group) final;

 protected:
  // Which factor of an adapter is split as the weight is: B of a product whose outputs are hidden
  // features, A of one whose inputs are.
  enum class SplitFactor { kA, kB };
  ExpertProductsLayer(std::string name, int64_t experts, int64_t parts, int64_t hidden,
                      int64_t width, Init init, SplitFactor split_factor);

  // The one adapter; null where there is none, or where it is merged into the weight.
  const Adapter* adapter() const;
  // The leaves of an expert's hidden features here; none where one leaf is here.
  FeatureLeaves HiddenLeaves() const { return cut_.Leaves(hidden_); }
  // How many hidden features of each expert are here.
  int64_t own_hidden() const { return own_hidden_.count; }
  int64_t experts() const { return experts_; }

 private:
  // Says which rows of the weight and of the factors are here. Asks no group, of which one may be
  // gone: a model is split once and again to describe its tensors (core/layout/model_tensors.h).
  void Slice();
  // The factor that is whole here, and the one that is split as the weight is.
  Parameter& Whole(const Adapter& adapter) const;
  Parameter& Sliced(const Adapter& adapter) const;

  int64_t experts_, parts_, hidden_;
  SplitFactor split_factor_;
  FeatureCut cut_;
  Range own_hidden_,
      own_experts_;  // of the weight: which hidden features of which experts are here
};

// The first product, x w(e)^T: an expert's rows are its gate, then up. The factors of its adapter
// are lora_A [experts * rank, width] and lora_B [experts * 2 * hidden, rank].
class ExpertGateUpLayer final : public ExpertProductsLayer {
 public:
  ExpertGateUpLayer(std::string name, int64_t experts, int64_t hidden, int64_t width, Init init);

  // x [dispatched, width] to [dispatched, 2 * own hidden features].
  Variable operator()(Tape& tape, const Variable& x, const SharedRanges& rows);

  std::vector<LowRank> AddedToWeight(const Adapter& adapter, Kernels& kernels) const override;

 private:
  FeatureLeaves GateUpLeaves() const;
};

// The second product, SwiGlu(pre) w(e): an expert's rows are its hidden features. The factors of
// its adapter are lora_A [experts * hidden, rank], which lies as the weight does, and lora_B
// [experts * width, rank].
class ExpertDownLayer final : public ExpertProductsLayer {
 public:
  ExpertDownLayer(std::string name, int64_t experts, int64_t hidden, int64_t width, Init init);

  // pre [dispatched, 2 * own hidden features] to [dispatched, width], the sum over these.
  Variable OfSwiGlu(Tape& tape, const Variable& pre, const SharedRanges& rows);

  bool has_inputs_as_rows() const override { return true; }
  std::vector<LowRank> AddedToWeight(const Adapter& adapter, Kernels& kernels) const override;
};

}  // namespace lockstep
