// The two ends of a language model: rows looked up by token, and cross entropy over the vocabulary.

#include <algorithm>
#include <cmath>

#include "core/base/parallel.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/span.h"
#include "core/kernels/cpu/vector_math.h"
#include "glog/logging.h"

namespace lockstep {

void CpuKernels::Embedding(const Tensor& ids, const Tensor& table, const Tensor& y) {
  Span span(this);
  const int64_t width = table.shape()[1], vocabulary = table.shape()[0];
  ParallelFor(ids.elements(), 64, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t id = ids.data<int32_t>()[r];
      DCHECK(id >= 0 && id < vocabulary) << id << " of " << vocabulary;
      std::copy_n(table.data<float>() + id * width, width, y.data<float>() + r * width);
    }
  });
}

void CpuKernels::EmbeddingBackward(const Tensor& ids, const Tensor& dy, Write write,
                                   const Tensor& dtable) {
  Span span(this);
  if (write == Write::kOverwrite) Fill(dtable, 0);
  const int64_t width = dtable.shape()[1];
  // Threads divide the columns: each adds all rows in order, so the sums do not depend on how many
  // threads there are.
  ParallelFor(width, 64, [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < ids.elements(); ++r) {
      float* to = dtable.data<float>() + ids.data<int32_t>()[r] * width;
      const float* from = dy.data<float>() + r * width;
      for (int64_t i = begin; i < end; ++i) to[i] += from[i];
    }
  });
}

void CpuKernels::AddPositions(const Tensor& x, const Tensor& table, const Tensor& y) {
  Span span(this);
  const int64_t time = x.shape()[1], width = x.shape()[2];
  CHECK_LE(time, table.shape()[0]);
  ParallelFor(x.shape().rows(), 64, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* in = x.data<float>() + r * width;
      const float* position = table.data<float>() + r % time * width;
      float* out = y.data<float>() + r * width;
      for (int64_t i = 0; i < width; ++i) out[i] = in[i] + position[i];
    }
  });
}

void CpuKernels::AddPositionsBackward(const Tensor& dy, Write write, const Tensor& dtable) {
  Span span(this);
  if (write == Write::kOverwrite) Fill(dtable, 0);
  const int64_t batch = dy.shape()[0], time = dy.shape()[1], width = dy.shape()[2];
  ParallelFor(time, 16, [&](int64_t begin, int64_t end) {
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t t = begin; t < end; ++t) {
        const float* from = dy.data<float>() + (b * time + t) * width;
        float* to = dtable.data<float>() + t * width;
        for (int64_t i = 0; i < width; ++i) to[i] += from[i];
      }
    }
  });
}

void CpuKernels::SoftmaxCrossEntropy(const Tensor& logits, const Tensor& targets, float factor,
                                     const Tensor& losses, const Tensor& dlogits) {
  Span span(this);
  const int64_t classes = logits.shape()[-1];
  CHECK_EQ(targets.elements(), logits.shape().rows());
  ParallelFor(targets.elements(), std::max<int64_t>(1, (1 << 13) / classes),
              [&](int64_t begin, int64_t end) {
                for (int64_t r = begin; r < end; ++r) {
                  const float* row = logits.data<float>() + r * classes;
                  const int32_t target = targets.data<int32_t>()[r];
                  float* gradient =
                      dlogits.defined() ? dlogits.data<float>() + r * classes : nullptr;
                  if (target < 0) {
                    losses.data<float>()[r] = 0;
                    if (gradient != nullptr) std::fill_n(gradient, classes, 0.0f);
                    continue;
                  }
                  float largest = row[0];
#pragma omp simd reduction(max : largest)
                  for (int64_t i = 0; i < classes; ++i) largest = std::max(largest, row[i]);
                  float sum = 0;
#pragma omp simd reduction(+ : sum)
                  for (int64_t i = 0; i < classes; ++i) sum += cpu::Exp(row[i] - largest);
                  losses.data<float>()[r] = std::log(sum) + (largest - row[target]);
                  if (gradient == nullptr) continue;
                  const float inverse = factor / sum;
                  for (int64_t i = 0; i < classes; ++i)
                    gradient[i] = cpu::Exp(row[i] - largest) * inverse;
                  gradient[target] -= factor;
                }
              });
}

int64_t CpuKernels::CountCorrect(const Tensor& logits, const Tensor& targets) {
  Span span(this);
  const int64_t classes = logits.shape()[-1];
  int64_t correct = 0;
  for (int64_t r = 0; r < targets.elements(); ++r) {
    const float* row = logits.data<float>() + r * classes;
    correct += std::max_element(row, row + classes) - row == targets.data<int32_t>()[r];
  }
  return correct;
}

}  // namespace lockstep
