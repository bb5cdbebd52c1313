// One forward and backward of a model, beside the same in double precision.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/kernels/reference.h"
#include "core/nn/model.h"
#include "models/testing/double_graph.h"

namespace lockstep {

// The parameters of a model in a DoubleGraph, by name. Tied ones are values of their own there, as
// each keeps a gradient of its own.
class DoubleParameters {
 public:
  DoubleParameters(DoubleGraph& graph, Kernels& kernels, const std::vector<Parameter*>& parameters);

  // Requires that there is one of that name.
  DoubleGraph::Value operator[](const std::string& name) const;

  // Expects the gradient of every parameter within `tolerance`, relative to the tensor's largest.
  void ExpectGradients(double tolerance) const;

 private:
  DoubleGraph& graph_;
  Kernels& kernels_;
  std::vector<Parameter*> parameters_;
  std::map<std::string, DoubleGraph::Value> values_;
};

// Adds normal numbers of standard deviation `stddev` to every parameter that owns its value: biases
// start at zero and scales at one, where mistakes hide.
void Perturb(Kernels& kernels, const std::vector<Parameter*>& parameters, float stddev);

// Runs the blocks one after the other.
Variables RunBlocks(Model& model, Pass& pass, const Tensor& inputs);

// Runs forward and backward of the mean cross entropy, and returns that.
double TrainOnce(Model& model, Pass& pass, const Tensor& inputs, const Tensor& targets);

}  // namespace lockstep
