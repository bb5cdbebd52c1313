#include "strategies/tensor_parallel/tensor_group.h"

#include <utility>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/comm/host_numbers.h"

namespace lockstep {
namespace {

constexpr char kActivations[] = "activations";
constexpr char kGradients[] = "activation gradients";

}  // namespace

Tensor TensorGroup::Sum(Kernels& kernels, const Tensor& x, const char* label) {
  Tensor sum = x.shared() ? kernels.EmptyLike(x) : x;
  ThrowIfError(ranks_.AllReduce(x, sum, ReduceOp::kSum, label).Wait());
  return sum;
}

Tensor TensorGroup::Scatter(Kernels& kernels, const Tensor& all, const char* label) {
  const Shape& shape = all.shape();
  const Tensor own = kernels.Empty({shape.rows() / size(), shape[-1]}, all.dtype());
  ThrowIfError(ranks_.ReduceScatter(all, own, ReduceOp::kSum, label).Wait());
  return own;
}

Tensor TensorGroup::Gather(Kernels& kernels, const Tensor& own, const Shape& all,
                           const char* label) {
  const Tensor gathered = kernels.Empty(all, own.dtype());
  ThrowIfError(ranks_.AllGather(own, gathered, label).Wait());
  return gathered;
}

Variable TensorGroup::Enter(Pass& pass, const Variable& x) {
  if (size() == 1) return x;
  Kernels& k = pass.kernels();
  if (!splits_sequence()) {
    Variable out = pass.tape.Result(x.value, x.needs_gradient());
    pass.tape.Record(out,
                     [this, &k, x = x.gradient](Tensor dy) { x->Add(k, Sum(k, dy, kGradients)); });
    return out;
  }
  const TokenOrder& tokens = pass.tokens;
  const int64_t sequences = tokens.held_leaves() * tokens.samples;
  const Shape all = {sequences, x.shape().rows() * size() / sequences, x.shape()[-1]};
  Variable out = pass.tape.Result(Gather(k, x.value, all, kActivations), x.needs_gradient());
  pass.tape.Record(
      out, [this, &k, x = x.gradient](Tensor dy) { x->Add(k, Scatter(k, dy, kGradients)); });
  return out;
}

Variable TensorGroup::Leave(Pass& pass, Variable x) {
  if (size() == 1) return x;
  Kernels& k = pass.kernels();
  const bool needs_gradient = x.needs_gradient();
  if (!splits_sequence()) {
    // The variable's own handle must not count as another's.
    const Tensor value = std::exchange(x.value, Tensor());
    Variable out = pass.tape.Result(Sum(k, value, kActivations), needs_gradient);
    pass.tape.Record(out, [&k, x = x.gradient](Tensor dy) { x->Add(k, std::move(dy)); });
    return out;
  }
  const Shape all = x.shape();
  Variable out = pass.tape.Result(Scatter(k, x.value, kActivations), needs_gradient);
  pass.tape.Record(out, [this, &k, all, x = x.gradient](Tensor dy) {
    x->Add(k, Gather(k, dy, all, kGradients));
  });
  return out;
}

Variable TensorGroup::GatherColumns(Pass& pass, const Variable& x,
                                    const std::vector<int64_t>& widths) {
  if (size() == 1) return x;
  Kernels& k = pass.kernels();
  const int64_t rows = x.shape().rows();
  // Ranks' columns lie one behind the other as they come, each a matrix on a boundary of its own.
  const int64_t element = SizeOf(x.value.dtype());
  std::vector<int64_t> counts;
  int64_t total = 0, width = 0, own_first = 0, own_offset = 0;
  for (int i = 0; i < size(); ++i) {
    if (i == index()) {
      own_first = width;
      own_offset = total;
    }
    counts.push_back(AlignedBytes(rows * widths[i] * element) / element);
    total += counts.back();
    width += widths[i];
  }
  const int64_t own_width = widths[index()];
  const Tensor parts = k.Empty({total}, x.value.dtype(), MemoryClass::kCommunication);
  const Tensor own = parts.View(own_offset, {counts[index()]});
  k.Copy(x.value, own.View(0, x.shape()));
  ThrowIfError(ranks_.AllGather(own, parts, kActivations, counts).Wait());
  Variable out =
      pass.tape.Result(k.Empty(x.shape().With(-1, width), x.value.dtype()), x.needs_gradient());
  int64_t offset = 0, first = 0;
  for (int i = 0; i < size(); ++i) {
    k.CopyColumns(parts.View(offset, {rows, widths[i]}), 0, widths[i], out.value, first);
    offset += counts[i];
    first += widths[i];
  }
  pass.tape.Record(out, [&k, own_first, own_width, shape = x.shape(), x = x.gradient](Tensor dy) {
    const Tensor dx = k.Empty(shape, dy.dtype());
    k.CopyColumns(dy, own_first, own_width, dx, 0);
    x->Add(k, dx);
  });
  return out;
}

std::vector<int64_t> TensorGroup::GatherNumbers(const std::vector<int64_t>& numbers) const {
  std::vector<int64_t> all(numbers.size() * static_cast<size_t>(size()));
  ThrowIfError(lockstep::GatherNumbers(ranks_, numbers, absl::MakeSpan(all), kRoutedRows));
  return all;
}

void TensorGroup::Reduce(const Tensor& x, Reduction reduction) {
  if (size() == 1) return;
  const ReduceOp op = reduction == Reduction::kSum   ? ReduceOp::kSum
                      : reduction == Reduction::kMax ? ReduceOp::kMax
                                                     : ReduceOp::kMin;
  ThrowIfError(ranks_.AllReduce(x, x, op, "cross entropy").Wait());
}

void TensorGroup::SumGradient(const Tensor& gradient) {
  if (size() == 1) return;
  ThrowIfError(ranks_.AllReduce(gradient, gradient, ReduceOp::kSum, kReplicatedGradients).Wait());
}

}  // namespace lockstep
