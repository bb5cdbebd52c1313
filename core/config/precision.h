#pragma once

#include "absl/status/statusor.h"
#include "core/config/config.h"
#include "core/kernels/attention_kernels.h"
#include "core/kernels/options.h"
#include "core/optim/loss_scale.h"
#include "core/tensor/dtype.h"

namespace lockstep {

// What numbers a run computes with. Master weights and optimizer state are fp32 in any case, and so
// are normalisations, softmax, the loss, and the sums within a kernel.
struct Precision {
  DType compute = DType::kF32;  // parameters and activations: fp32, fp16 or bf16
  DType reduce = DType::kF32;   // gradients: kept, added up and summed over ranks
  Fp32Products fp32_products = Fp32Products::kFp32;       // on GPUs; the CPU has no TF32
  AttentionKernels attention = AttentionKernels::kCudnn;  // on GPUs
  LossScaleOptions loss_scale;

  // Whether the optimizer updates parameters that are computed with as they are. Otherwise it
  // updates fp32 masters, and the parameters are rounded copies of them.
  bool has_masters() const { return compute != DType::kF32; }
  bool scales_losses() const { return loss_scale.kind != LossScaleOptions::Kind::kNone; }
};

// Reads the table precision: compute ("fp32"), reduce (as compute), tf32 (false), cudnn_attention
// (true), loss_scaling ("dynamic" for fp16, else "none"), and what belongs to it: initial_scale,
// growth, backoff, interval.
absl::StatusOr<Precision> ReadPrecision(const Config& config);

}  // namespace lockstep
