#include "models/testing/comparison.h"

#include <utility>

#include "core/autograd/testing/arrays.h"
#include "core/base/philox.h"
#include "core/nn/loss.h"
#include "glog/logging.h"
#include "gtest/gtest.h"

namespace lockstep {

DoubleParameters::DoubleParameters(DoubleGraph& graph, Kernels& kernels,
                                   const std::vector<Parameter*>& parameters)
    : graph_(graph), kernels_(kernels), parameters_(parameters) {
  for (const Parameter* parameter : parameters) {
    values_[parameter->name] = graph.Input(Download(kernels, parameter->value));
  }
}

DoubleGraph::Value DoubleParameters::operator[](const std::string& name) const {
  const auto found = values_.find(name);
  CHECK(found != values_.end()) << "no parameter is named " << name;
  return found->second;
}

void DoubleParameters::ExpectGradients(double tolerance) const {
  for (const Parameter* parameter : parameters_) {
    ASSERT_TRUE(parameter->has_gradient()) << parameter->name;
    EXPECT_TRUE(IsNear(graph_.gradient(values_.at(parameter->name)),
                       Download(kernels_, parameter->gradient), tolerance))
        << parameter->name;
  }
}

void Perturb(Kernels& kernels, const std::vector<Parameter*>& parameters, float stddev) {
  for (const Parameter* parameter : parameters) {
    if (parameter->tied_to != nullptr) continue;
    const uint64_t stream = PhiloxKey(0, "perturbation", parameter->name);
    kernels.AddScaled(Upload(kernels, RandomArray(parameter->shape, stream)), stddev,
                      parameter->value);
  }
}

Variables RunBlocks(Model& model, Pass& pass, const Tensor& inputs) {
  Variables values = {Variable(inputs)};
  for (auto& block : model.blocks) values = block->Run(pass, std::move(values));
  return values;
}

double TrainOnce(Model& model, Pass& pass, const Tensor& inputs, const Tensor& targets) {
  Kernels& kernels = pass.kernels();
  const auto count = static_cast<double>(targets.elements());
  Variables logits = RunBlocks(model, pass, inputs);
  const CrossEntropy result =
      SoftmaxCrossEntropy(pass, std::move(logits[0]), targets, static_cast<float>(1 / count));
  pass.tape.Backward();
  return kernels.Sum(result.losses).Total() / count;
}

}  // namespace lockstep
