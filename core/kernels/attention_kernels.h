#pragma once

namespace lockstep {

// What computes attention on GPUs: our own kernels alone, or cuDNN where it has a kernel that
// repeats its bits, and ours elsewhere (core/kernels/cuda/attention_plans.h).
enum class AttentionKernels { kOwn, kCudnn };

}  // namespace lockstep
