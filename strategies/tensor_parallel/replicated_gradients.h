#pragma once

#include <vector>

#include "core/comm/communicator.h"
#include "core/kernels/kernels.h"

namespace lockstep {

// The gradients of parameters that every rank holds but has only a part of, as it met only its own
// tokens (norms, biases behind a sum, positions). Summed once a step, in one buffer.
class ReplicatedGradients {
 public:
  // All ranks have gradients of the same shapes, in memory that they keep. Communicator and kernels
  // outlive this.
  ReplicatedGradients(std::vector<Tensor> gradients, DType dtype, Communicator& ranks,
                      Kernels& kernels);

  // Once they are complete on this rank. Throws StatusException.
  void Sum();

  int64_t bytes() const { return flat_.bytes(); }

 private:
  Communicator& ranks_;
  Kernels& kernels_;
  std::vector<Tensor> gradients_;
  std::vector<Tensor> parts_;  // of `flat_`, one for each of them
  Tensor flat_;
};

}  // namespace lockstep
