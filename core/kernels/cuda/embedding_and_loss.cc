// The two ends of a language model: rows looked up by token, and cross entropy over the vocabulary.

#include "core/cuda/error.h"
#include "core/kernels/cuda/cross_entropy.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "core/kernels/cuda/embedding.h"
#include "core/kernels/cuda/llama_elements.h"
#include "core/kernels/cuda/span.h"
#include "glog/logging.h"

namespace lockstep {

using cuda::Of;

namespace {

cuda::ClassLogits ClassesOf(const Tensor& logits, const Range& classes) {
  return {.rows = logits.shape().rows(),
          .columns = logits.shape()[-1],
          .logits = Of(logits),
          .first = classes.first,
          .count = classes.count};
}

}  // namespace

void CudaKernels::Embedding(const Tensor& ids, const Tensor& table, const Tensor& y) {
  Span span(this);
  CHECK(y.dtype() == table.dtype()) << Name(y.dtype()) << " of " << Name(table.dtype());
  LS_CUDA(cuda::Embedding(stream(), ids.elements(), table.shape()[1], ids.data<int32_t>(),
                          Of(table), Of(y)));
}

void CudaKernels::EmbeddingBackward(const Tensor& ids, const Tensor& dy, Write write,
                                    const Tensor& dtable) {
  Span span(this);
  if (write == Write::kOverwrite) Fill(dtable, 0);
  LS_CUDA(cuda::EmbeddingBackward(stream(), ids.elements(), dtable.shape()[1], ids.data<int32_t>(),
                                  Of(dy), Of(dtable)));
}

void CudaKernels::LocalIds(const Tensor& ids, const Range& rows, const Tensor& y) {
  Span span(this);
  LS_CUDA(cuda::LocalIds(stream(), ids.elements(), ids.data<int32_t>(), rows.first, rows.count,
                         y.data<int32_t>()));
}

void CudaKernels::Rotate(const Rotation& rotation, const Tensor& x, const Tensor& positions,
                         const Tensor& table, const Tensor& y) {
  Span span(this);
  CHECK_EQ(positions.elements(), x.shape().rows());
  CHECK_EQ(table.shape()[-1], rotation.head_width);
  LS_CUDA(cuda::Rotate(stream(), rotation, x.shape().rows(), x.shape()[-1], Of(x),
                       positions.data<int32_t>(), table.data<float>(), Of(y)));
}

void CudaKernels::AddPositions(const Tensor& x, const Tensor& table, const Tensor& y) {
  Span span(this);
  CHECK_LE(x.shape()[1], table.shape()[0]);
  LS_CUDA(cuda::AddPositions(stream(), x.shape()[0], x.shape()[1], x.shape()[2], Of(x), Of(table),
                             Of(y)));
}

void CudaKernels::AddPositionsBackward(const Tensor& dy, Write write, const Tensor& dtable) {
  Span span(this);
  if (write == Write::kOverwrite) Fill(dtable, 0);
  LS_CUDA(cuda::AddPositionsBackward(stream(), dy.shape()[0], dy.shape()[1], dy.shape()[2], Of(dy),
                                     Of(dtable)));
}

void CudaKernels::SoftmaxCrossEntropy(const Tensor& logits, int64_t classes, const Tensor& targets,
                                      float factor, const Tensor& losses, const Tensor& dlogits) {
  Span span(this);
  CHECK_EQ(targets.elements(), logits.shape().rows());
  LS_CUDA(cuda::SoftmaxCrossEntropy(stream(), ClassesOf(logits, {0, classes}),
                                    targets.data<int32_t>(), factor, losses.data<float>(),
                                    Of(dlogits)));
}

int64_t CudaKernels::CountCorrect(const Tensor& logits, int64_t classes, const Tensor& targets) {
  Span span(this);
  const Tensor correct = Workspace({1}, DType::kI64);
  LS_CUDA(cudaMemsetAsync(correct.raw(), 0, correct.bytes(), stream()));
  LS_CUDA(cuda::CountCorrect(stream(), ClassesOf(logits, {0, classes}), targets.data<int32_t>(),
                             reinterpret_cast<unsigned long long*>(correct.raw())));
  int64_t count;
  CopyToHost(correct, &count);
  return count;
}

void CudaKernels::LargestLogits(const Tensor& logits, const Range& classes, const Tensor& largest,
                                const Tensor& where) {
  Span span(this);
  LS_CUDA(cuda::LargestLogits(stream(), ClassesOf(logits, classes), largest.data<float>(),
                              where.defined() ? where.data<int32_t>() : nullptr));
}

void CudaKernels::SumExponentials(const Tensor& logits, const Range& classes, const Tensor& largest,
                                  const Tensor& targets, const Tensor& sums, const Tensor& gaps) {
  Span span(this);
  CHECK_EQ(targets.elements(), logits.shape().rows());
  LS_CUDA(cuda::SumExponentials(stream(), ClassesOf(logits, classes), largest.data<float>(),
                                targets.data<int32_t>(), sums.data<float>(), gaps.data<float>()));
}

void CudaKernels::SplitCrossEntropy(const Tensor& logits, const Range& classes,
                                    const Tensor& largest, const Tensor& sums, const Tensor& gaps,
                                    const Tensor& targets, float factor, const Tensor& losses,
                                    const Tensor& dlogits) {
  Span span(this);
  LS_CUDA(cuda::SplitCrossEntropy(stream(), ClassesOf(logits, classes), largest.data<float>(),
                                  sums.data<float>(), gaps.data<float>(), targets.data<int32_t>(),
                                  factor, losses.data<float>(), Of(dlogits)));
}

}  // namespace lockstep
