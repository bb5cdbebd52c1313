#include "core/nn/expert_products_layer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/autograd/expert_products.h"
#include "core/autograd/operations.h"
#include "core/autograd/weight_gradients.h"  // RowsOf
#include "glog/logging.h"

namespace lockstep {
namespace {

// Adds the rows `own` of each of `experts` to `ranges`, where every expert has `of_expert` rows.
void AddRows(std::vector<Range>& ranges, const Range& experts, int64_t of_expert,
             const Range& own) {
  for (int64_t i = 0; i < experts.count; ++i) {
    ranges.push_back({(experts.first + i) * of_expert + own.first, own.count});
  }
}

Tensor OfExpert(Kernels& kernels, const Parameter& factor, int64_t expert, int64_t experts) {
  const int64_t count = factor.value.shape()[0] / experts;
  return RowsOf(kernels, factor.value, Range{.first = expert * count, .count = count});
}

}  // namespace

ExpertProductsLayer::ExpertProductsLayer(std::string name, int64_t experts, int64_t parts,
                                         int64_t hidden, int64_t width, Init init,
                                         SplitFactor split_factor)
    : AdaptableLayer(std::move(name), {experts * parts * hidden, width}, init),
      experts_(experts),
      parts_(parts),
      hidden_(hidden),
      split_factor_(split_factor),
      own_hidden_{.first = 0, .count = hidden},
      own_experts_{.first = 0, .count = experts} {
  weight().is_of_experts = true;
}

void ExpertProductsLayer::AddAdapter(const Target& target, const AdapterShape& shape) {
  CHECK(adapters().empty()) << name();
  const int64_t width = weight().shape[1], rank = shape.rank;
  const bool is_by_outputs = split_factor_ == SplitFactor::kB;
  const int64_t inputs = is_by_outputs ? width : hidden_;
  Parameter& a = AddParameter(
      "lora_A", is_by_outputs ? Shape({experts_ * rank, width}) : Shape({experts_ * hidden_, rank}),
      Init::Uniform(1.0f / std::sqrt(static_cast<float>(inputs))));
  Parameter& b = AddParameter(
      "lora_B", {is_by_outputs ? weight().shape[0] : experts_ * width, rank}, Init::Constant(0));
  a.is_of_experts = b.is_of_experts = true;
  adapters().emplace_back(a, b, shape, target.outputs);
}

const Adapter* ExpertProductsLayer::adapter() const {
  return adapters().empty() || adapters().front().is_merged() ? nullptr : &adapters().front();
}

Parameter& ExpertProductsLayer::Whole(const Adapter& adapter) const {
  return split_factor_ == SplitFactor::kB ? adapter.a() : adapter.b();
}

Parameter& ExpertProductsLayer::Sliced(const Adapter& adapter) const {
  return split_factor_ == SplitFactor::kB ? adapter.b() : adapter.a();
}

void ExpertProductsLayer::CutFeatures(SplitStyle style, int features) {
  if (style != SplitStyle::kColumn || features == 1) return;
  cut_.features = features;
  cut_.style = style;
  for (const Adapter& adapter : adapters()) Whole(adapter).feature_leaves = cut_.leaves();
}

void ExpertProductsLayer::Split(SplitStyle style, SplitGroup& group) {
  if (style != SplitStyle::kColumn) return;
  cut_.style = style;
  cut_.group = &group;
  for (const Adapter& adapter : adapters()) {
    Whole(adapter).features_over = &group;
    Whole(adapter).feature_leaves = cut_.leaves();
  }
  own_hidden_ = cut_.Own(hidden_);
  Slice();
}

void ExpertProductsLayer::DivideExperts(ExpertGroup& group) {
  CHECK_EQ(experts_ % group.size(), 0) << name();
  own_experts_ = EvenRange(experts_, group.size(), group.index());
  Slice();
}

void ExpertProductsLayer::Slice() {
  const Range& experts = own_experts_;
  lockstep::Slice of_weight = {.dimension = 0, .ranges = {}};
  AddRows(of_weight.ranges, {experts.first * parts_, experts.count * parts_}, hidden_, own_hidden_);
  weight().slice = of_weight;
  for (const Adapter& adapter : adapters()) {
    Sliced(adapter).slice = of_weight;
    if (experts.count == experts_) continue;
    Parameter& whole = Whole(adapter);
    const int64_t of_expert = whole.shape[0] / experts_;
    whole.slice = lockstep::Slice{
        .dimension = 0, .ranges = {{experts.first * of_expert, experts.count * of_expert}}};
  }
}

ExpertGateUpLayer::ExpertGateUpLayer(std::string name, int64_t experts, int64_t hidden,
                                     int64_t width, Init init)
    : ExpertProductsLayer(std::move(name), experts, /*parts=*/2, hidden, width, init,
                          SplitFactor::kB) {}

FeatureLeaves ExpertGateUpLayer::GateUpLeaves() const {
  FeatureLeaves leaves = HiddenLeaves();
  for (std::vector<Range>& leaf : leaves) {
    leaf.push_back({.first = own_hidden() + leaf[0].first, .count = leaf[0].count});
  }
  return leaves;
}

Variable ExpertGateUpLayer::operator()(Tape& tape, const Variable& x, const SharedRanges& rows) {
  const FeatureLeaves leaves = GateUpLeaves();
  const Adapter* adapted = adapter();
  if (adapted == nullptr) return ExpertLinear(tape, x, weight(), rows, leaves);
  const Variables readers =
      FanOut(tape, x, std::max<int64_t>(1, static_cast<int64_t>(leaves.size())));
  const Variable y = ExpertOutputs(tape, readers, weight(), rows, leaves);
  const Variables low =
      Scale(tape, ExpertProduct(tape, readers, adapted->a(), rows), adapted->scale());
  return AddExpertProduct(tape, y, low, adapted->b(), rows, leaves);
}

std::vector<LowRank> ExpertGateUpLayer::AddedToWeight(const Adapter& adapter,
                                                      Kernels& kernels) const {
  std::vector<LowRank> added;
  const int64_t of_expert = weight().shape[0] / experts();
  for (int64_t e = 0; e < experts(); ++e) {
    added.push_back({.rows = {e * of_expert, of_expert},
                     .left = OfExpert(kernels, adapter.b(), e, experts()),
                     .right = OfExpert(kernels, adapter.a(), e, experts())});
  }
  return added;
}

ExpertDownLayer::ExpertDownLayer(std::string name, int64_t experts, int64_t hidden, int64_t width,
                                 Init init)
    : ExpertProductsLayer(std::move(name), experts, /*parts=*/1, hidden, width, init,
                          SplitFactor::kA) {}

Variable ExpertDownLayer::OfSwiGlu(Tape& tape, const Variable& pre, const SharedRanges& rows) {
  const FeatureLeaves leaves = HiddenLeaves();
  const Adapter* adapted = adapter();
  if (adapted == nullptr) return ExpertSwiGluLinear(tape, pre, weight(), rows, leaves);
  const Variable hidden = SwiGlu(tape, pre);
  LeafSum sum = ExpertInputs(tape, hidden, weight(), rows, leaves);
  LeafSum low =
      Scale(tape, ExpertInputs(tape, hidden, adapted->a(), rows, leaves), adapted->scale());
  return AddUp(tape, AddExpertProduct(tape, std::move(sum), low, adapted->b(), rows));
}

std::vector<LowRank> ExpertDownLayer::AddedToWeight(const Adapter& adapter,
                                                    Kernels& kernels) const {
  std::vector<LowRank> added;
  const int64_t of_expert = weight().shape[0] / experts();
  for (int64_t e = 0; e < experts(); ++e) {
    added.push_back({.rows = {e * of_expert, of_expert},
                     .left = OfExpert(kernels, adapter.a(), e, experts()),
                     .right = OfExpert(kernels, adapter.b(), e, experts()),
                     .right_is = Transpose::kYes});
  }
  return added;
}

}  // namespace lockstep
