#include "core/layout/model_tensors.h"

#include <algorithm>
#include <utility>

#include "core/nn/experts.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// A member of a group that splits a model, and never runs it.
class PlannedMember : public SplitGroup {
 public:
  PlannedMember(int size, int index) : size_(size), index_(index) {}
  int size() const override { return size_; }
  int index() const override { return index_; }
  bool splits_sequence() const override { return false; }
  Variable Enter(Pass&, const Variable&) override { return Refuse(); }
  Variable Leave(Pass&, Variable) override { return Refuse(); }
  Variable GatherColumns(Pass&, const Variable&, const std::vector<int64_t>&) override {
    return Refuse();
  }
  std::vector<int64_t> GatherNumbers(const std::vector<int64_t>&) const override {
    Refuse();
    return {};
  }
  void Reduce(const Tensor&, Reduction) override { Refuse(); }
  void SumGradient(const Tensor&) override { Refuse(); }

 private:
  static Variable Refuse() {
    LOG(FATAL) << "the model was split to describe its tensors, not to run";
    return {};
  }

  const int size_, index_;
};

// A member of ranks that divide experts, likewise.
class PlannedExperts : public ExpertGroup {
 public:
  PlannedExperts(int size, int index) : size_(size), index_(index) {}
  int size() const override { return size_; }
  int index() const override { return index_; }
  Received ToExperts(Pass&, const std::string&, const Variable&, const SharedRanges&) override {
    LOG(FATAL) << "the model was divided to describe its tensors, not to run";
    return {};
  }
  Variable ToTokens(Pass&, const Variable&, const Received&) override {
    LOG(FATAL) << "the model was divided to describe its tensors, not to run";
    return {};
  }

 private:
  const int size_, index_;
};

TensorSplit SplitOf(const Shape& shape, const std::optional<Slice>& slice, const Shape& held) {
  const int64_t elements = slice ? slice->ShapeOf(shape).elements() : shape.elements();
  return {.slice = slice, .elements = elements, .padding = held.elements() - elements};
}

void AddStatistics(const RunningStatistics& layer, int64_t block, std::vector<ModelTensor>& all) {
  const auto add = [&](const char* what, const Shape& shape, DType dtype, int64_t sums,
                       const std::optional<Slice>& slice) {
    all.push_back({.name = layer.name + what,
                   .shape = shape,
                   .block = block,
                   .is_frozen = layer.frozen,
                   .statistic = dtype,
                   .statistic_sums = sums,
                   .splits = {SplitOf(shape, slice, slice ? slice->ShapeOf(shape) : shape)}});
  };
  const Shape shape = {layer.channels};
  // Three sums of each channel update both estimates.
  const auto [mean, variance] = layer.buffer_names();
  add(mean, shape, DType::kF32, layer.frozen ? 0 : 3, layer.slice);
  add(variance, shape, DType::kF32, 0, layer.slice);
  if (!layer.momentum && !layer.frozen) add(".updates", {1}, DType::kI64, 0, std::nullopt);
}

}  // namespace

std::vector<ModelTensor> TensorsOf(const Model& model) {
  std::vector<ModelTensor> tensors;
  const std::vector<Parameter*> parameters = model.Parameters();
  const auto blocks = static_cast<int64_t>(model.blocks.size());
  for (int64_t block = 0; block < blocks; ++block) {
    for (const Parameter* parameter : model.blocks[block]->Parameters()) {
      ModelTensor tensor = {
          .name = parameter->name,
          .shape = parameter->shape,
          .block = block,
          .is_frozen = !parameter->trainable,
          .splits = {SplitOf(parameter->shape, parameter->slice, parameter->held_shape())},
          .is_of_experts = parameter->is_of_experts};
      if (parameter->tied_to != nullptr) {
        const auto owner = std::find(parameters.begin(), parameters.end(), parameter->tied_to);
        tensor.tied_to = owner - parameters.begin();
      }
      tensors.push_back(std::move(tensor));
    }
  }
  for (int64_t block = 0; block < blocks; ++block) {
    for (const RunningStatistics* layer : model.blocks[block]->Statistics()) {
      AddStatistics(*layer, block, tensors);
    }
  }
  return tensors;
}

std::vector<ModelTensor> TensorsOf(Model& model, int tp, int ep) {
  std::vector<ModelTensor> tensors;
  for (int place = 0; place < ep; ++place) {
    PlannedExperts experts(ep, place);
    if (ep > 1) model.DivideExperts(experts);
    for (int index = 0; index < tp; ++index) {
      PlannedMember member(tp, index);
      if (tp > 1) model.Split(member);
      std::vector<ModelTensor> own = TensorsOf(std::as_const(model));
      if (tensors.empty()) {
        tensors = std::move(own);
        continue;
      }
      for (size_t i = 0; i < own.size(); ++i) {
        if (place > 0 && !own[i].is_of_experts) continue;
        tensors[i].splits.push_back(own[i].splits[0]);
      }
    }
  }
  return tensors;
}

}  // namespace lockstep
