#include "strategies/tensor_parallel/replicated_gradients.h"

#include <utility>

#include "core/base/status.h"
#include "strategies/tensor_parallel/tensor_group.h"

namespace lockstep {

ReplicatedGradients::ReplicatedGradients(std::vector<Tensor> gradients, DType dtype,
                                         Communicator& ranks, Kernels& kernels)
    : ranks_(ranks), kernels_(kernels), gradients_(std::move(gradients)) {
  std::vector<int64_t> offsets;
  int64_t total = 0;
  for (const Tensor& gradient : gradients_) {
    offsets.push_back(total);
    total += AlignedBytes(gradient.bytes()) / SizeOf(dtype);
  }
  flat_ = kernels.Empty({total}, dtype, MemoryClass::kCommunication);
  kernels.Fill(flat_, 0);
  for (size_t i = 0; i < gradients_.size(); ++i) {
    parts_.push_back(flat_.View(offsets[i], gradients_[i].shape()));
  }
}

void ReplicatedGradients::Sum() {
  for (size_t i = 0; i < parts_.size(); ++i) kernels_.Copy(gradients_[i], parts_[i]);
  ThrowIfError(ranks_.AllReduce(flat_, flat_, ReduceOp::kSum, kReplicatedGradients).Wait());
  for (size_t i = 0; i < parts_.size(); ++i) kernels_.Copy(parts_[i], gradients_[i]);
}

}  // namespace lockstep
