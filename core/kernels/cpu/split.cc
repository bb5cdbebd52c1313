// What ranks need that compute a layer together: what follows a sum over ranks, columns that come
// from several, and the steps of a cross entropy between which they reduce.

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "core/base/parallel.h"
#include "core/base/sum_tree.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/float_elements.h"
#include "core/kernels/cpu/leaf_sums.h"
#include "core/kernels/cpu/row_sums.h"
#include "core/kernels/cpu/span.h"
#include "core/kernels/cpu/vector_math.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

using cpu::FloatInput;
using cpu::FloatOutput;

// Calls run(row number, its logits, its gradients) for all rows, in parallel; the gradients are
// null where `dlogits` is undefined.
template <typename Function>
void ForLogits(const Tensor& logits, const Tensor& dlogits, Function&& run) {
  const int64_t columns = logits.shape()[-1];
  const int64_t grain = std::max<int64_t>(1, (1 << 13) / columns);
  const int64_t stretch = cpu::StretchRows(columns);
  ParallelFor(logits.shape().rows(), grain, [&](int64_t begin, int64_t end) {
    FloatInput input(logits, stretch * columns);
    FloatOutput output(dlogits, stretch * columns);
    cpu::ForStretches(begin, end, stretch, [&](int64_t first, int64_t count) {
      const float* rows = input.Load(first * columns, count * columns);
      float* gradients =
          dlogits.defined() ? output.Open(first * columns, count * columns) : nullptr;
      for (int64_t r = 0; r < count; ++r) {
        run(first + r, rows + r * columns, gradients ? gradients + r * columns : nullptr);
      }
      if (gradients != nullptr) output.Close();
    });
  });
}

}  // namespace

void CpuKernels::CopyColumns(const Tensor& x, int64_t first, int64_t count, const Tensor& y,
                             int64_t from) {
  Span span(this, {x}, {y});
  CHECK(x.dtype() == y.dtype()) << Name(x.dtype()) << " to " << Name(y.dtype());
  CHECK_EQ(x.shape().rows(), y.shape().rows());
  const int64_t size = SizeOf(x.dtype());
  const int64_t x_row = x.shape()[-1] * size, y_row = y.shape()[-1] * size;
  CHECK_LE((first + count) * size, x_row);
  CHECK_LE((from + count) * size, y_row);
  ParallelFor(x.shape().rows(), 64, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      std::memcpy(y.raw() + r * y_row + from * size, x.raw() + r * x_row + first * size,
                  count * size);
    }
  });
}

void CpuKernels::AddBias(const Tensor& x, const Tensor& bias, const Tensor& residual,
                         const Tensor& y) {
  Span span(this, {x, bias, residual}, {y});
  const int64_t width = x.shape()[-1], rows = x.shape().rows();
  const int64_t stretch = cpu::StretchRows(width);
  ParallelFor(rows, 16, [&](int64_t begin, int64_t end) {
    FloatInput input(x, stretch * width), added(residual, stretch * width), biases(bias, width);
    FloatOutput output(y, stretch * width);
    cpu::ForStretches(begin, end, stretch, [&](int64_t first, int64_t count) {
      const float* in = input.Load(first * width, count * width);
      const float* shift = bias.defined() ? biases.Load(0, width) : nullptr;
      const float* more = residual.defined() ? added.Load(first * width, count * width) : nullptr;
      float* out = output.Open(first * width, count * width);
      for (int64_t r = 0; r < count; ++r) {
        for (int64_t i = r * width; i < (r + 1) * width; ++i) {
          float sum = in[i];
          if (shift != nullptr) sum += shift[i - r * width];
          if (more != nullptr) sum += more[i];
          out[i] = sum;
        }
      }
      output.Close();
    });
  });
}

void CpuKernels::ColumnSums(const Tensor& x, Write write, const Tensor& sums) {
  Span span(this, {x}, {sums});
  const int64_t width = x.shape()[-1], rows = x.shape().rows();
  const int64_t grain = std::max<int64_t>(1, (1 << 14) / width), stretch = cpu::StretchRows(width);
  cpu::LeafSums leaves(cpu::RowLeaves(rows), cpu::RowLeafChunks(rows, grain), width);
  cpu::ForRowLeaves(rows, grain, [&](int chunk, int64_t leaf, int64_t begin, int64_t leaf_rows) {
    float* leaf_sums = leaves.Open(chunk, leaf);
    FloatInput input(x, stretch * width);
    cpu::ForStretches(begin, begin + leaf_rows, stretch, [&](int64_t first, int64_t count) {
      const float* in = input.Load(first * width, count * width);
      cpu::AddRows(in, width, count, width, leaf_sums);
    });
    leaves.Close(chunk);
  });
  leaves.WriteTo({sums}, write);
}

void CpuKernels::LocalIds(const Tensor& ids, const Range& rows, const Tensor& y) {
  Span span(this, {ids}, {y});
  const int32_t* from = ids.data<int32_t>();
  std::transform(from, from + ids.elements(), y.data<int32_t>(), [&rows](int32_t id) {
    const int64_t local = id - rows.first;
    return static_cast<int32_t>(local >= 0 && local < rows.count ? local : -1);
  });
}

void CpuKernels::LargestLogits(const Tensor& logits, const Range& classes, const Tensor& largest,
                               const Tensor& where) {
  Span span(this, {logits}, {largest, where});
  ForLogits(logits, Tensor(), [&](int64_t r, const float* row, float*) {
    const float best =
        std::max(std::numeric_limits<float>::lowest(), cpu::LargestOfRow(row, classes.count));
    largest.data<float>()[r] = best;
    if (!where.defined()) return;
    const int64_t at = std::find(row, row + classes.count, best) - row;
    where.data<int32_t>()[r] = at < classes.count ? static_cast<int32_t>(classes.first + at)
                                                  : std::numeric_limits<int32_t>::max();
  });
}

void CpuKernels::SumExponentials(const Tensor& logits, const Range& classes, const Tensor& largest,
                                 const Tensor& targets, const Tensor& sums, const Tensor& gaps) {
  Span span(this, {logits, largest, targets}, {sums, gaps});
  SumExponentialsByLeaves(logits, classes, std::max<int64_t>(1, classes.count), largest, targets,
                          sums, gaps);
}

void CpuKernels::SumExponentialsByLeaves(const Tensor& logits, const Range& classes,
                                         int64_t leaf_classes, const Tensor& largest,
                                         const Tensor& targets, const Tensor& sums,
                                         const Tensor& gaps) {
  Span span(this, {logits, largest, targets}, {sums, gaps});
  CHECK_EQ(targets.elements(), logits.shape().rows());
  std::vector<int64_t> merged;  // nodes that each leaf completes
  TreeStack stack((classes.count + leaf_classes - 1) / leaf_classes);
  for (int64_t first = 0; first < classes.count; first += leaf_classes) {
    merged.push_back(stack.Push());
  }
  ForLogits(logits, Tensor(), [&](int64_t r, const float* row, float*) {
    const float shift = largest.data<float>()[r];
    float nodes[64];  // at most as many wait as a number has bits
    int count = 0;
    for (size_t leaf = 0; leaf < merged.size(); ++leaf) {
      const int64_t first = static_cast<int64_t>(leaf) * leaf_classes;
      float sum = cpu::SumRow(std::min(leaf_classes, classes.count - first),
                              [=](int64_t c) { return cpu::Exp(row[first + c] - shift); });
      for (int64_t i = 0; i < merged[leaf]; ++i) sum += nodes[--count];
      nodes[count++] = sum;
    }
    sums.data<float>()[r] = count > 0 ? nodes[0] : 0;
    const int64_t target = targets.data<int32_t>()[r] - classes.first;
    gaps.data<float>()[r] = target >= 0 && target < classes.count ? shift - row[target] : 0;
  });
}

void CpuKernels::SplitCrossEntropy(const Tensor& logits, const Range& classes,
                                   const Tensor& largest, const Tensor& sums, const Tensor& gaps,
                                   const Tensor& targets, float factor, const Tensor& losses,
                                   const Tensor& dlogits) {
  Span span(this, {logits, largest, sums, gaps, targets}, {losses, dlogits});
  const int64_t columns = logits.shape()[-1];
  ForLogits(logits, dlogits, [&](int64_t r, const float* row, float* gradient) {
    const int32_t target = targets.data<int32_t>()[r];
    const float sum = sums.data<float>()[r];
    losses.data<float>()[r] = target < 0 ? 0 : cpu::Log(sum) + gaps.data<float>()[r];
    if (gradient == nullptr) return;
    const int64_t filled = target < 0 ? 0 : classes.count;
    const float shift = largest.data<float>()[r], inverse = factor / sum;
    for (int64_t c = 0; c < filled; ++c) gradient[c] = cpu::Exp(row[c] - shift) * inverse;
    std::fill(gradient + filled, gradient + columns, 0.0f);
    const int64_t local = target - classes.first;
    if (target >= 0 && local >= 0 && local < classes.count) gradient[local] -= factor;
  });
}

}  // namespace lockstep
