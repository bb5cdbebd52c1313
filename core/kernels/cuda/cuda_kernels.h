#pragma once

#include <memory>

#include "core/cuda/context.h"
#include "core/cuda/page_locked_allocator.h"
#include "core/cuda/staging.h"
#include "core/kernels/attention_kernels.h"
#include "core/kernels/cuda/array.h"
#include "core/kernels/kernels.h"
#include "core/kernels/product_shapes.h"

namespace lockstep {

namespace cuda {
class AttentionPlans;
class BatchNorms;
class CudnnConvolutions;
class Cudnn;
class MatrixProducts;
class WeightGradientGraphs;
}  // namespace cuda

// The kernels of a rank that computes on an NVIDIA GPU, queued on the rank's stream. Matrix
// products stand on cuBLASLt, convolutions on cuDNN, both without TF32 unless it is asked for or
// holds all operands exactly; batch normalisation stands on cuDNN too, and attention where that is
// asked for and cuDNN has it; the others are our own.
//
// Nothing waits for the device but what hands numbers to the host. For the same shapes on the same
// kind of GPU every kernel gives the same bits: no sum depends on which block comes first. Products
// of divided shapes (ProductShapes) give an element the same bits in any shape.
//
// An error that CUDA reports is thrown as StatusException, with the call and its place.
class CudaKernels final : public Kernels {
 public:
  // The context and the allocator, which is of the same GPU, outlive the kernels and all tensors
  // made with them.
  CudaKernels(CudaContext& context, Allocator& allocator,
              Fp32Products fp32_products = Fp32Products::kFp32,
              ProductShapes product_shapes = ProductShapes::kDivided,
              AttentionKernels attention = AttentionKernels::kOwn);
  ~CudaKernels() override;

  Allocator& allocator() override { return allocator_; }

  // The time in which the rank's thread queued kernels, or waited for their results.
  int64_t busy_nanos() const override { return busy_nanos_; }

  void Fill(const Tensor& y, float value) override;
  void Copy(const Tensor& x, const Tensor& y) override;
  void Cast(const Tensor& x, const Tensor& y) override;
  void CopyColumns(const Tensor& x, int64_t first, int64_t count, const Tensor& y,
                   int64_t from) override;
  void CopyFromHost(const void* host, const Tensor& y) override;
  void CopyToHost(const Tensor& x, void* host) override;
  Allocator& host_allocator() override { return page_locked_; }
  Tensor Upload(const Tensor& host) override;

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
  void Route(const Routing& routing, const Tensor& logits, const Tensor& bias, const Tensor& chosen,
             const Tensor& weights) override;
  void RouteBackward(const Routing& routing, const Tensor& logits, const Tensor& chosen,
                     const Tensor& dweights, const Tensor& balance, const Tensor& dlogits) override;
  void CombineRows(const Tensor& x, const Tensor& places, const Tensor& weights,
                   const Tensor& residual, const Tensor& sums) override;
  void CombineRowsBackward(const Tensor& dsums, const Tensor& x, const Tensor& places,
                           const Tensor& weights, const Tensor& dx,
                           const Tensor& dweights) override;
  void AttentionForward(const Attention& attention, const Tensor& qkv, const Tensor& y,
                        const Tensor& log_sum_exp) override;
  void AttentionOfFurtherTokens(const Attention&, int64_t, const Tensor&, const Tensor&,
                                const Tensor&) override {
    Lack();
  }
  void AttentionBackward(const Attention& attention, const Tensor& qkv, const Tensor& y,
                         const Tensor& log_sum_exp, const Tensor& dy, const Tensor& dqkv) override;
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

  void SoftmaxCrossEntropy(const Tensor& logits, int64_t classes, const Tensor& targets,
                           float factor, const Tensor& losses, const Tensor& dlogits) override;
  int64_t CountCorrect(const Tensor& logits, int64_t classes, const Tensor& targets) override;

  void LargestLogits(const Tensor& logits, const Range& classes, const Tensor& largest,
                     const Tensor& where) override;
  void SumExponentials(const Tensor& logits, const Range& classes, const Tensor& largest,
                       const Tensor& targets, const Tensor& sums, const Tensor& gaps) override;
  void SplitCrossEntropy(const Tensor& logits, const Range& classes, const Tensor& largest,
                         const Tensor& sums, const Tensor& gaps, const Tensor& targets,
                         float factor, const Tensor& losses, const Tensor& dlogits) override;

  ExactSum SumOfAll(absl::Span<const Tensor> tensors) override;
  float MaxMagnitude(const Tensor& x) override;
  SquareSum SumOfSquares(const Tensor& x, float scale) override;
  float MaxMagnitudeOfAll(absl::Span<const Tensor> tensors) override;
  SquareSum SumOfSquaresOfAll(absl::Span<const Tensor> tensors, float scale) override;

  void UpdateParameters(const OptimizerRule& optimizer, const OptimizerStep& step,
                        absl::Span<const OptimizedTensor> tensors) override;

 private:
  // Books the time of one kernel call.
  class Span;

  cudaStream_t stream() const { return context_.stream(); }

  Tensor Workspace(const Shape& shape, DType dtype = DType::kF32) {
    return Empty(shape, dtype, MemoryClass::kWorkspace);
  }

  // dw[out, in] (+)= dy^T x and dbias[out] (+)= the column sums of dy[rows, out], each where it is
  // defined; x[rows, in] is read for dw alone.
  void WeightGradients(const Tensor& dy, const Tensor& x, Write write, const Tensor& dw,
                       const Tensor& dbias);
  // Both at once, by cuBLASLt; or returns false, where that is not allowed (ProductShapes), would
  // round a sum twice, or has no algorithm.
  bool SumWithProduct(const Tensor& dy, const Tensor& x, Write write, const Tensor& dw,
                      const Tensor& dbias);

  CudaContext& context_;
  Allocator& allocator_;
  const ProductShapes product_shapes_;
  CudaStaging staging_;
  PageLockedAllocator page_locked_;
  std::unique_ptr<cuda::MatrixProducts> products_;
  std::unique_ptr<cuda::Cudnn> cudnn_;
  std::unique_ptr<cuda::CudnnConvolutions> convolutions_;
  std::unique_ptr<cuda::WeightGradientGraphs> weight_gradients_;  // of 16-bit convolutions
  std::unique_ptr<cuda::BatchNorms> batch_norms_;
  std::unique_ptr<cuda::AttentionPlans> attention_plans_;
  int64_t busy_nanos_ = 0;
  int depth_ = 0;  // of nested kernel calls
};

}  // namespace lockstep
