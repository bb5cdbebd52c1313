#pragma once

#include <memory>

#include "core/kernels/cpu/instruction_set.h"
#include "core/kernels/kernel_call.h"
#include "core/kernels/kernels.h"

namespace lockstep {

namespace cpu {
class ConvolutionPrimitives;
}  // namespace cpu

// The kernels of a rank that computes on the CPU, on the threads of the rank that calls
// (core/base/parallel.h). Matrix products in fp32 and 3x3 convolutions with stride 1 run on a
// microkernel of our own, other convolutions on oneDNN; normalisations, attention and the loss are
// loops of our own, because they are bound by memory and gain more from being fused with their
// neighbours than from any faster arithmetic.
//
// Where the processor multiplies bf16 (AVX512-BF16), linear layers of bf16 tensors do so with a
// microkernel of our own, and convolutions through oneDNN where Winograd's fp32 is not faster.
// Else, and in fp16, both compute in fp32 and round: fp16 keeps its range, and its overflows are
// real.
//
// The bits of a result do not depend on the number of threads, nor on the number of rows or columns
// of a call; in fp32 and without oneDNN's convolutions, nor on the instructions (docs/numerics.md).
class CpuKernels : public Kernels {
 public:
  // The allocator outlives the kernels and all tensors made with them.
  // Matrix products of bf16 tensors use the processor's own only with the widest instructions.
  explicit CpuKernels(Allocator& allocator, InstructionSet instructions = WidestInstructionSet());
  ~CpuKernels() override;

  // Keeps oneDNN, which the whole process shares, to these instructions. False where it cannot be
  // kept so any more: call it before the first CpuKernels computes.
  static bool LimitLibraries(InstructionSet instructions);

  InstructionSet instructions() const { return instructions_; }

  Allocator& allocator() override { return allocator_; }

  int64_t busy_nanos() const override { return busy_nanos_; }

  // Reports all calls from now on to `observer`, which outlives the kernels. Null stops that. For
  // rehearsals and measurements.
  void Observe(KernelObserver* observer) { observer_ = observer; }

  void Fill(const Tensor& y, float value) override;
  void Copy(const Tensor& x, const Tensor& y) override;
  void Cast(const Tensor& x, const Tensor& y) override;
  void CopyColumns(const Tensor& x, int64_t first, int64_t count, const Tensor& y,
                   int64_t from) override;
  void CopyFromHost(const void* host, const Tensor& y) override;
  void CopyToHost(const Tensor& x, void* host) override;

  void Add(const Tensor& a, const Tensor& b, const Tensor& y) override;
  void Multiply(const Tensor& a, const Tensor& b, const Tensor& y) override;
  void Scale(const Tensor& x, float factor, const Tensor& y) override;
  void AddScaled(const Tensor& x, float factor, const Tensor& y) override;
  void Relu(const Tensor& x, const Tensor& y) override;
  void ReluBackward(const Tensor& y, const Tensor& dy, const Tensor& dx) override;
  void Gelu(const Tensor& x, const Tensor& y) override;
  void GeluBackward(const Tensor& x, const Tensor& dy, const Tensor& dx) override;
  void SwiGlu(const Tensor& x, const Tensor& y) override;
  void SwiGluBackward(const Tensor& x, const Tensor& dy, const Tensor& dx) override;
  void ApplyDropout(const Dropout& dropout, int64_t first_element, const Tensor& x,
                    const Tensor& y) override;

  void MatMul(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
              Write write, const Tensor& c) override;
  void Linear(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& residual,
              const Tensor& y) override;
  void LinearBackward(const Tensor& dy, const Tensor& x, const Tensor& w, Write write,
                      const Tensor& dx, const Tensor& dw, const Tensor& dbias) override;
  void AddBias(const Tensor& x, const Tensor& bias, const Tensor& residual,
               const Tensor& y) override;
  void ColumnSums(const Tensor& x, Write write, const Tensor& sums) override;
  void GeluMlp(const Tensor& x, const Tensor& up, const Tensor& up_bias, const Tensor& down,
               const Tensor& down_bias, const Tensor& residual, const Tensor& pre,
               const Tensor& y) override;
  void GeluLinear(const Tensor& pre, const Tensor& down, const Tensor& bias, const Tensor& residual,
                  const Tensor& y) override;
  void GeluMlpBackward(const Tensor& x, const Tensor& pre, const Tensor& up, const Tensor& down,
                       const Tensor& dy, Write write, const GeluMlpGradients& gradients) override;

  void LinearByLeaves(const Tensor& x, const Tensor& w, const FeatureLeaves& leaves,
                      const Tensor& y) override;
  void LinearBackwardByLeaves(const Tensor& dy, const Tensor& x, const Tensor& w,
                              const FeatureLeaves& leaves, Write write, const Tensor& dx,
                              const Tensor& dw, const Tensor& dbias) override;
  void GeluMlpByLeaves(const Tensor& x, const Tensor& up, const Tensor& up_bias, const Tensor& down,
                       const FeatureLeaves& leaves, const Tensor& pre, const Tensor& y) override;
  void GeluMlpBackwardByLeaves(const Tensor& x, const Tensor& pre, const Tensor& up,
                               const Tensor& down, const FeatureLeaves& leaves, const Tensor& dy,
                               Write write, const GeluMlpGradients& gradients) override;

  void Convolution(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window,
                   const Tensor& y) override;
  void ConvolutionBackwardInput(const Tensor& dy, const Tensor& w, const Window& window,
                                const Tensor& dx) override;
  void ConvolutionBackwardWeight(const Tensor& dy, const Tensor& x, const Window& window,
                                 Write write, const Tensor& dw, const Tensor& dbias) override;
  void MaxPool(const Tensor& x, const Window& window, const Tensor& y) override;
  void MaxPoolBackward(const Tensor& x, const Window& window, const Tensor& y, const Tensor& dy,
                       const Tensor& dx) override;
  void GlobalAveragePool(const Tensor& x, const Tensor& y) override;
  void GlobalAveragePoolBackward(const Tensor& dy, const Tensor& dx) override;
  void Upsample(const Tensor& x, const Tensor& y) override;
  void UpsampleBackward(const Tensor& dy, const Tensor& dx) override;

  Tensor BatchNorm(const Tensor& x, const Tensor& scale, const Tensor& shift,
                   const Tensor& residual, float epsilon, Activation activation, const Tensor& y,
                   const Tensor& mean, const Tensor& variance) override;
  void BatchNormInference(const Tensor& x, const Tensor& scale, const Tensor& shift,
                          const Tensor& residual, const Tensor& mean, const Tensor& variance,
                          float epsilon, Activation activation, const Tensor& y) override;
  void BatchNormBackward(const Tensor& x, const Tensor& scale, const Tensor& mean,
                         const Tensor& variance, const Tensor& kept, float epsilon, const Tensor& y,
                         const Tensor& dy, const Tensor& dx, const Tensor& dresidual, Write write,
                         const Tensor& dscale, const Tensor& dshift) override;
  void AddStatistics(const Tensor& mean, const Tensor& variance, float weight, Write write,
                     const Tensor& sums) override;
  void UpdateRunningStatistics(const Tensor& sums, double weight, int64_t rows, float momentum,
                               const Tensor& running_mean, const Tensor& running_variance) override;
  void LayerNorm(const Tensor& x, const Tensor& scale, const Tensor& shift, float epsilon,
                 const Tensor& y, const Tensor& mean, const Tensor& inverse_stddev) override;
  void LayerNormBackward(const Tensor& x, const Tensor& scale, const Tensor& mean,
                         const Tensor& inverse_stddev, const Tensor& dy, const Tensor& residual,
                         const Tensor& dx, Write write, const Tensor& dscale,
                         const Tensor& dshift) override;
  void RmsNorm(const Tensor& x, const Tensor& scale, float epsilon, const Tensor& y,
               const Tensor& inverse_rms) override;
  void RmsNormBackward(const Tensor& x, const Tensor& scale, const Tensor& inverse_rms,
                       const Tensor& dy, const Tensor& residual, const Tensor& dx, Write write,
                       const Tensor& dscale) override;

  void Embedding(const Tensor& ids, const Tensor& table, const Tensor& y) override;
  void EmbeddingBackward(const Tensor& ids, const Tensor& dy, Write write,
                         const Tensor& dtable) override;
  void LocalIds(const Tensor& ids, const Range& rows, const Tensor& y) override;
  void AddPositions(const Tensor& x, const Tensor& table, const Tensor& y) override;
  void AddPositionsBackward(const Tensor& dy, Write write, const Tensor& dtable) override;
  void Rotate(const Rotation& rotation, const Tensor& x, const Tensor& positions,
              const Tensor& table, const Tensor& y) override;
  void AttentionForward(const Attention& attention, const Tensor& qkv, const Tensor& y,
                        const Tensor& log_sum_exp) override;
  void AttentionBackward(const Attention& attention, const Tensor& qkv, const Tensor& y,
                         const Tensor& log_sum_exp, const Tensor& dy, const Tensor& dqkv) override;
  void AttentionOfFurtherTokens(const Attention& attention, int64_t before, const Tensor& qkv,
                                const Tensor& keys, const Tensor& y) override;
  void AttentionForwardByTokenLeaves(const Attention& attention, int64_t leaves, const Tensor& qkv,
                                     const Tensor& y, const Tensor& log_sum_exp) override;
  void AttentionBackwardByTokenLeaves(const Attention& attention, int64_t leaves, const Tensor& qkv,
                                      const Tensor& y, const Tensor& log_sum_exp, const Tensor& dy,
                                      const Tensor& dqkv) override;
  void AttentionOfPart(const Attention& attention, const AttentionPart& part, const Tensor& queries,
                       const Tensor& keys, const AttentionSums& to) override;
  void AddAttention(const Attention& attention, const AttentionSums& more,
                    const AttentionSums& to) override;
  void FinishAttention(const Attention& attention, const AttentionSums& sums, const Tensor& y,
                       const Tensor& log_sum_exp) override;
  void AttentionOfPartBackward(const Attention& attention, const AttentionPart& part,
                               const Tensor& queries, const Tensor& keys, const Tensor& y,
                               const Tensor& log_sum_exp, const Tensor& dy, const Tensor& dqueries,
                               const Tensor& dkeys) override;

  void Route(const Routing& routing, const Tensor& logits, const Tensor& bias, const Tensor& chosen,
             const Tensor& weights) override;
  void RouteBackward(const Routing& routing, const Tensor& logits, const Tensor& chosen,
                     const Tensor& dweights, const Tensor& balance, const Tensor& dlogits) override;
  void CombineRows(const Tensor& x, const Tensor& places, const Tensor& weights,
                   const Tensor& residual, const Tensor& sums) override;
  void CombineRowsBackward(const Tensor& dsums, const Tensor& x, const Tensor& places,
                           const Tensor& weights, const Tensor& dx,
                           const Tensor& dweights) override;

  void SoftmaxCrossEntropy(const Tensor& logits, int64_t classes, const Tensor& targets,
                           float factor, const Tensor& losses, const Tensor& dlogits) override;
  int64_t CountCorrect(const Tensor& logits, int64_t classes, const Tensor& targets) override;

  void LargestLogits(const Tensor& logits, const Range& classes, const Tensor& largest,
                     const Tensor& where) override;
  void SumExponentials(const Tensor& logits, const Range& classes, const Tensor& largest,
                       const Tensor& targets, const Tensor& sums, const Tensor& gaps) override;
  void SumExponentialsByLeaves(const Tensor& logits, const Range& classes, int64_t leaf_classes,
                               const Tensor& largest, const Tensor& targets, const Tensor& sums,
                               const Tensor& gaps) override;
  void SplitCrossEntropy(const Tensor& logits, const Range& classes, const Tensor& largest,
                         const Tensor& sums, const Tensor& gaps, const Tensor& targets,
                         float factor, const Tensor& losses, const Tensor& dlogits) override;

  ExactSum SumOfAll(absl::Span<const Tensor> tensors) override;
  float MaxMagnitude(const Tensor& x) override;
  SquareSum SumOfSquares(const Tensor& x, float scale) override;

  void UpdateParameters(const OptimizerRule& optimizer, const OptimizerStep& step,
                        absl::Span<const OptimizedTensor> tensors) override;

 private:
  // Books the time of one kernel call.
  class Span;

  Tensor Workspace(const Shape& shape) {
    return Empty(shape, DType::kF32, MemoryClass::kWorkspace);
  }

  // Whether products of such a tensor are computed in bf16.
  bool MultipliesBf16(const Tensor& x) const;

  // Convolutions by oneDNN, a group of samples at a time (cpu/convolution_primitive.h). The first
  // one writes y where it runs forward, else x, which is then a gradient as y is.
  void ConvolutionByGroups(bool forward, const Tensor& x, const Tensor& w, const Tensor& bias,
                           const Window& window, const Tensor& y);
  // dw is fp32.
  void WeightGradientByGroups(const Tensor& dy, const Tensor& x, const Window& window,
                              const Tensor& dw);

  Allocator& allocator_;
  InstructionSet instructions_;
  std::unique_ptr<cpu::ConvolutionPrimitives> primitives_;
  int64_t busy_nanos_ = 0;
  int depth_ = 0;  // of nested kernel calls
  KernelObserver* observer_ = nullptr;
};

}  // namespace lockstep
