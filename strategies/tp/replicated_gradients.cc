#include "strategies/tp/replicated_gradients.h"

#include "core/base/status.h"

namespace lockstep {

ReplicatedGradients::ReplicatedGradients(const std::vector<Parameter*>& parameters, DType dtype,
                                         Communicator& ranks, Kernels& kernels)
    : ranks_(ranks), kernels_(kernels) {
  std::vector<int64_t> offsets;
  int64_t total = 0;
  for (Parameter* parameter : parameters) {
    if (parameter->slice) continue;
    parameters_.push_back(parameter);
    offsets.push_back(total);
    total += AlignedBytes(parameter->shape.elements() * SizeOf(dtype)) / SizeOf(dtype);
  }
  flat_ = kernels.Empty({total}, dtype, MemoryClass::kCommunication);
  kernels.Fill(flat_, 0);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parts_.push_back(flat_.View(offsets[i], parameters_[i]->shape));
  }
}

void ReplicatedGradients::Sum() {
  for (size_t i = 0; i < parts_.size(); ++i) kernels_.Copy(parameters_[i]->gradient, parts_[i]);
  ThrowIfError(ranks_.AllReduce(flat_, flat_, ReduceOp::kSum, "replicated gradients").Wait());
  for (size_t i = 0; i < parts_.size(); ++i) kernels_.Copy(parts_[i], parameters_[i]->gradient);
}

}  // namespace lockstep
