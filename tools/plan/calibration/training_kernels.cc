#include "tools/plan/calibration/training_kernels.h"

#include <cstdint>

#include "core/kernels/cpu/instruction_set.h"

namespace lockstep {
namespace {

// Part of a small transformer's layer.
constexpr int64_t kWidth = 256;

}  // namespace

TrainingKernels::TrainingKernels() : kernels_(allocator_, WidestInstructionSet()) {
  for (const Tensor& tensor : {x_, w_, y_, dy_, dx_, dw_}) kernels_.Fill(tensor, 0.5F);
}

void TrainingKernels::Run(int rounds) {
  for (int round = 0; round < rounds; ++round) {
    kernels_.Linear(x_, w_, Tensor(), Tensor(), y_);
    kernels_.Gelu(y_, dy_);
    kernels_.LinearBackward(dy_, x_, w_, Write::kOverwrite, dx_, dw_, Tensor());
  }
}

Tensor TrainingKernels::Square() {
  return Tensor::Empty(allocator_, {kWidth, kWidth}, DType::kF32, MemoryClass::kActivations);
}

}  // namespace lockstep
