// The two ends of a language model: rows looked up by token, and cross entropy over the vocabulary.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "core/base/parallel.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/float_elements.h"
#include "core/kernels/cpu/row_sums.h"
#include "core/kernels/cpu/span.h"
#include "core/kernels/cpu/vector_math.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

using cpu::FloatInput;
using cpu::FloatOutput;

// The loss of one row, and its gradient over `classes` elements where `gradient` is not null; this
// may be the row itself.
float RowLoss(const float* row, int64_t classes, int32_t target, float factor, float* gradient) {
  if (target < 0) {
    if (gradient != nullptr) std::fill_n(gradient, classes, 0.0f);
    return 0;
  }
  const float largest = cpu::LargestOfRow(row, classes);
  const float gap = largest - row[target];
  float sum = 0;
  if (gradient == nullptr) {
    sum = cpu::SumRow(classes, [=](int64_t i) { return cpu::Exp(row[i] - largest); });
  } else {
    sum = cpu::SumRow(classes, [=](int64_t i) { return gradient[i] = cpu::Exp(row[i] - largest); });
    const float inverse = factor / sum;
    for (int64_t i = 0; i < classes; ++i) gradient[i] *= inverse;
    gradient[target] -= factor;
  }
  return cpu::Log(sum) + gap;
}

}  // namespace

void CpuKernels::Embedding(const Tensor& ids, const Tensor& table, const Tensor& y) {
  Span span(this, {ids, table}, {y});
  CHECK(y.dtype() == table.dtype()) << Name(y.dtype()) << " of " << Name(table.dtype());
  const int64_t vocabulary = table.shape()[0], bytes = table.shape()[1] * SizeOf(table.dtype());
  // The sign bit is the uppermost of each element, whose lower bytes come first.
  std::vector<std::byte> no_row(static_cast<size_t>(bytes));
  for (size_t i = SizeOf(table.dtype()) - 1; i < no_row.size(); i += SizeOf(table.dtype())) {
    no_row[i] = std::byte{0x80};
  }
  ParallelFor(ids.elements(), 64, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t id = ids.data<int32_t>()[r];
      DCHECK(id < vocabulary) << id << " of " << vocabulary;
      if (id < 0) {
        std::memcpy(y.raw() + r * bytes, no_row.data(), bytes);
      } else {
        std::memcpy(y.raw() + r * bytes, table.raw() + id * bytes, bytes);
      }
    }
  });
}

void CpuKernels::EmbeddingBackward(const Tensor& ids, const Tensor& dy, Write write,
                                   const Tensor& dtable) {
  Span span(this, {ids, dy}, {dtable});
  if (write == Write::kOverwrite) Fill(dtable, 0);
  const int64_t rows = ids.elements(), vocabulary = dtable.shape()[0], width = dtable.shape()[1];
  const int32_t* id = ids.data<int32_t>();
  // The sum of this call is complete before it is added to what the table holds, and it is rounded
  // once: words that occur several times are summed up beside the table.
  std::vector<int32_t> occurrences(vocabulary, 0), place(vocabulary, -1), words;
  // One chunk: a loop that a rehearsal skips, where ids are anything.
  ParallelFor(1, 1, [&](int64_t /*begin*/, int64_t /*end*/) {
    for (int64_t r = 0; r < rows; ++r) {
      if (id[r] < 0 || ++occurrences[id[r]] != 2) continue;
      place[id[r]] = static_cast<int32_t>(words.size());
      words.push_back(id[r]);
    }
  });
  // The size of the sums does not depend on the words, so each step takes the same memory.
  const Tensor sums = Workspace({std::min(rows / 2, vocabulary), width});
  // Threads divide the columns: each adds all rows in order, so the sums do not depend on how many
  // threads there are.
  ParallelFor(width, 64, [&](int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    FloatInput gradient(dy, count);
    FloatOutput output(dtable, count);
    const auto add_to_table = [&](int32_t word, const float* from) {
      float* to = output.OpenSums(Write::kAccumulate, word * width + begin, count);
      for (int64_t i = 0; i < count; ++i) to[i] += from[i];
      output.Close();
    };
    std::vector<bool> started(words.size());
    for (int64_t r = 0; r < rows; ++r) {
      if (id[r] < 0) continue;
      const float* from = gradient.Load(r * width + begin, count);
      const int32_t at = place[id[r]];
      if (at < 0) {
        add_to_table(id[r], from);
        continue;
      }
      float* to = sums.data<float>() + at * width + begin;
      if (started[at]) {
        for (int64_t i = 0; i < count; ++i) to[i] += from[i];
      } else {
        std::copy_n(from, count, to);
        started[at] = true;
      }
    }
    for (size_t w = 0; w < words.size(); ++w) {
      add_to_table(words[w], sums.data<float>() + static_cast<int64_t>(w) * width + begin);
    }
  });
}

void CpuKernels::AddPositions(const Tensor& x, const Tensor& table, const Tensor& y) {
  Span span(this, {x, table}, {y});
  const int64_t time = x.shape()[1], width = x.shape()[2];
  CHECK_LE(time, table.shape()[0]);
  const int64_t stretch = std::min(time, cpu::StretchRows(width));
  ParallelFor(x.shape().rows(), 64, [&](int64_t begin, int64_t end) {
    FloatInput input(x, stretch * width), positions(table, stretch * width);
    FloatOutput output(y, stretch * width);
    for (int64_t r = begin; r < end;) {
      const int64_t count = std::min({stretch, end - r, time - r % time});
      const float* in = input.Load(r * width, count * width);
      const float* position = positions.Load(r % time * width, count * width);
      float* out = output.Open(r * width, count * width);
      for (int64_t i = 0; i < count * width; ++i) out[i] = in[i] + position[i];
      output.Close();
      r += count;
    }
  });
}

void CpuKernels::AddPositionsBackward(const Tensor& dy, Write write, const Tensor& dtable) {
  Span span(this, {dy}, {dtable});
  const int64_t batch = dy.shape()[0], time = dy.shape()[1], width = dy.shape()[2];
  const int64_t rows = dtable.shape()[0];
  ParallelFor(rows, 16, [&](int64_t begin, int64_t end) {
    FloatInput gradient(dy, width);
    FloatOutput output(dtable, width);
    cpu::FloatBuffer buffer(width);
    float* sums = buffer.data();
    for (int64_t t = begin; t < end; ++t) {
      if (t >= time && write == Write::kAccumulate) break;
      // The sum over the batch is complete before it is added to what the table holds.
      std::fill_n(sums, width, 0.0f);
      for (int64_t b = 0; b < batch && t < time; ++b) {
        const float* from = gradient.Load((b * time + t) * width, width);
        for (int64_t i = 0; i < width; ++i) sums[i] += from[i];
      }
      float* to = output.OpenSums(write, t * width, width);
      for (int64_t i = 0; i < width; ++i) to[i] += sums[i];
      output.Close();
    }
  });
}

void CpuKernels::SoftmaxCrossEntropy(const Tensor& logits, int64_t classes, const Tensor& targets,
                                     float factor, const Tensor& losses, const Tensor& dlogits) {
  Span span(this, {logits, targets}, {losses, dlogits});
  const int64_t columns = logits.shape()[-1];
  CHECK_EQ(targets.elements(), logits.shape().rows());
  CHECK_LE(classes, columns);
  const int64_t grain = std::max<int64_t>(1, (1 << 13) / columns);
  const int64_t stretch = cpu::StretchRows(columns);
  ParallelFor(targets.elements(), grain, [&](int64_t begin, int64_t end) {
    FloatInput input(logits, stretch * columns);
    FloatOutput output(dlogits, stretch * columns);
    cpu::ForStretches(begin, end, stretch, [&](int64_t first, int64_t count) {
      const int64_t at = first * columns, elements = count * columns;
      const float* rows = input.Load(at, elements);
      float* gradients = dlogits.defined() ? output.Open(at, elements) : nullptr;
      for (int64_t r = 0; r < count; ++r) {
        float* gradient = gradients != nullptr ? gradients + r * columns : nullptr;
        losses.data<float>()[first + r] = RowLoss(
            rows + r * columns, classes, targets.data<int32_t>()[first + r], factor, gradient);
        if (gradient != nullptr) std::fill(gradient + classes, gradient + columns, 0.0f);
      }
      if (gradients != nullptr) output.Close();
    });
  });
}

int64_t CpuKernels::CountCorrect(const Tensor& logits, int64_t classes, const Tensor& targets) {
  Span span(this, {logits, targets}, {});
  const int64_t columns = logits.shape()[-1];
  CHECK_LE(classes, columns);
  if (SkipsLoops()) return 0;
  FloatInput input(logits, classes);
  int64_t correct = 0;
  for (int64_t r = 0; r < targets.elements(); ++r) {
    const float* row = input.Load(r * columns, classes);
    correct += std::max_element(row, row + classes) - row == targets.data<int32_t>()[r];
  }
  return correct;
}

}  // namespace lockstep
