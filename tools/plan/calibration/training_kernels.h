#pragma once

#include "core/kernels/cpu/cpu_kernels.h"
#include "core/tensor/allocator.h"
#include "core/tensor/tensor.h"

namespace lockstep {

// Kernels between the calls of a step: a product of 256 x 256 floats, its gradients and a
// nonlinearity, bound by arithmetic and by memory in turn.
class TrainingKernels {
 public:
  TrainingKernels();

  // Less than a millisecond each.
  void Run(int rounds);

 private:
  Tensor Square();

  CpuAllocator allocator_;
  CpuKernels kernels_;
  const Tensor x_ = Square(), w_ = Square(), y_ = Square(), dy_ = Square(), dx_ = Square(),
               dw_ = Square();
};

}  // namespace lockstep
