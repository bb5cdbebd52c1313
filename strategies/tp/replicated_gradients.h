#pragma once

#include <vector>

#include "core/comm/communicator.h"
#include "core/kernels/kernels.h"
#include "core/nn/parameter.h"

namespace lockstep {

// The gradients of parameters that every rank holds but met only its own tokens of (norms, biases
// behind a sum, positions): summed once a step, in one buffer.
class ReplicatedGradients {
 public:
  // Of those parameters that are not split. The communicator and the parameters outlive this.
  ReplicatedGradients(const std::vector<Parameter*>& parameters, DType dtype, Communicator& ranks,
                      Kernels& kernels);

  // Once they are complete on this rank. Throws StatusException.
  void Sum();

  int64_t bytes() const { return flat_.bytes(); }

 private:
  Communicator& ranks_;
  Kernels& kernels_;
  std::vector<Parameter*> parameters_;
  std::vector<Tensor> parts_;  // of `flat_`, one for each of them
  Tensor flat_;
};

}  // namespace lockstep
