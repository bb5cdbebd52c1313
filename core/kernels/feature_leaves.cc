#include "core/kernels/feature_leaves.h"

#include <algorithm>

namespace lockstep {
namespace {

// x as one row, of which a range of its rows is a range of columns.
Tensor AsRow(const Tensor& x) { return x.Reshape({1, x.elements()}); }

std::vector<Range> ElementsOf(const std::vector<Range>& rows, int64_t width) {
  std::vector<Range> elements;
  for (const Range& range : rows) elements.push_back({range.first * width, range.count * width});
  return elements;
}

int64_t WidthOf(const Tensor& x) { return x.elements() / x.shape()[0]; }

}  // namespace

int64_t FeaturesOf(const std::vector<Range>& leaf) {
  int64_t features = 0;
  for (const Range& range : leaf) features += range.count;
  return features;
}

bool IsWhole(const FeatureLeaves& leaves, int64_t features) {
  return leaves.empty() || (leaves.size() == 1 && FeaturesOf(leaves[0]) == features);
}

Tensor TakeColumns(Kernels& kernels, const Tensor& x, const std::vector<Range>& columns) {
  const int64_t count = FeaturesOf(columns);
  if (count == x.shape()[-1] && columns.size() == 1) return x;
  const Tensor to = kernels.Empty(x.shape().With(-1, count), x.dtype(), MemoryClass::kWorkspace);
  int64_t at = 0;
  for (const Range& range : columns) {
    kernels.CopyColumns(x, range.first, range.count, to, at);
    at += range.count;
  }
  return to;
}

void PutColumns(Kernels& kernels, const Tensor& from, const std::vector<Range>& columns,
                const Tensor& x) {
  int64_t at = 0;
  for (const Range& range : columns) {
    kernels.CopyColumns(from, at, range.count, x, range.first);
    at += range.count;
  }
}

Tensor TakeRows(Kernels& kernels, const Tensor& x, const std::vector<Range>& rows) {
  const Shape shape = x.shape().With(0, FeaturesOf(rows));
  return TakeColumns(kernels, AsRow(x), ElementsOf(rows, WidthOf(x))).Reshape(shape);
}

void PutRows(Kernels& kernels, const Tensor& from, const std::vector<Range>& rows,
             const Tensor& x) {
  PutColumns(kernels, AsRow(from), ElementsOf(rows, WidthOf(x)), AsRow(x));
}

GradientSlice::GradientSlice(Kernels& kernels, const Tensor& whole, Dimension dimension,
                             const std::vector<Range>& ranges, Write write)
    : kernels_(kernels), whole_(whole), dimension_(dimension), ranges_(ranges) {
  if (!whole.defined()) return;
  const Shape shape =
      whole.shape().With(dimension == Dimension::kFirst ? 0 : -1, FeaturesOf(ranges));
  if (write == Write::kOverwrite) {
    slice_ = kernels.Empty(shape, whole.dtype(), MemoryClass::kWorkspace);
  } else {
    slice_ = dimension == Dimension::kFirst ? TakeRows(kernels, whole, ranges)
                                            : TakeColumns(kernels, whole, ranges);
  }
}

void GradientSlice::Put() const {
  if (!whole_.defined() || slice_.same_storage(whole_)) return;
  if (dimension_ == Dimension::kFirst) {
    PutRows(kernels_, slice_, ranges_, whole_);
  } else {
    PutColumns(kernels_, slice_, ranges_, whole_);
  }
}

void Kernels::LinearByLeaves(const Tensor& x, const Tensor& w, const FeatureLeaves& leaves,
                             const Tensor& y) {
  SumFeatureLeaves(*this, leaves, y, [&](const std::vector<Range>& leaf) {
    const Tensor sum = EmptyLike(y);
    Linear(TakeColumns(*this, x, leaf), TakeColumns(*this, w, leaf), Tensor(), Tensor(), sum);
    return sum;
  });
}

void Kernels::LinearBackwardByLeaves(const Tensor& dy, const Tensor& x, const Tensor& w,
                                     const FeatureLeaves& leaves, Write write, const Tensor& dx,
                                     const Tensor& dw, const Tensor& dbias) {
  if (dx.defined()) {
    SumFeatureLeaves(*this, leaves, dx, [&](const std::vector<Range>& leaf) {
      const Tensor sum = EmptyLike(dx);
      LinearBackward(TakeColumns(*this, dy, leaf), Tensor(), TakeRows(*this, w, leaf),
                     Write::kOverwrite, sum, Tensor(), Tensor());
      return sum;
    });
  }
  if (!dw.defined() && !dbias.defined()) return;
  LinearBackward(dy, x, w, write, Tensor(), dw, dbias);
}

void Kernels::GeluMlpByLeaves(const Tensor& x, const Tensor& up, const Tensor& up_bias,
                              const Tensor& down, const FeatureLeaves& leaves, const Tensor& pre,
                              const Tensor& y) {
  SumFeatureLeaves(*this, leaves, y, [&](const std::vector<Range>& leaf) {
    const Tensor sum = EmptyLike(y);
    const Tensor hidden = Empty(pre.shape().With(-1, FeaturesOf(leaf)), pre.dtype());
    GeluMlp(x, TakeRows(*this, up, leaf), TakeRows(*this, up_bias, leaf),
            TakeColumns(*this, down, leaf), Tensor(), Tensor(), hidden, sum);
    PutColumns(*this, hidden, leaf, pre);
    return sum;
  });
}

void Kernels::GeluMlpBackwardByLeaves(const Tensor& x, const Tensor& pre, const Tensor& up,
                                      const Tensor& down, const FeatureLeaves& leaves,
                                      const Tensor& dy, Write write,
                                      const GeluMlpGradients& gradients) {
  using Dimension = GradientSlice::Dimension;
  const auto run = [&](const std::vector<Range>& leaf) {
    const GradientSlice dup(*this, gradients.up, Dimension::kFirst, leaf, write),
        dup_bias(*this, gradients.up_bias, Dimension::kFirst, leaf, write),
        ddown(*this, gradients.down, Dimension::kLast, leaf, write);
    const Tensor dx = gradients.x.defined() ? EmptyLike(gradients.x) : Tensor();
    GeluMlpBackward(x, TakeColumns(*this, pre, leaf), TakeRows(*this, up, leaf),
                    TakeColumns(*this, down, leaf), dy, write,
                    {dx, dup.tensor(), dup_bias.tensor(), ddown.tensor(), Tensor()});
    dup.Put();
    dup_bias.Put();
    ddown.Put();
    return dx;
  };
  if (gradients.x.defined()) {
    SumFeatureLeaves(*this, leaves, gradients.x, run);
  } else {
    for (const std::vector<Range>& leaf : leaves) run(leaf);
  }
  if (gradients.down_bias.defined()) ColumnSums(dy, write, gradients.down_bias);
}

void Kernels::SumExponentialsByLeaves(const Tensor& logits, const Range& classes,
                                      int64_t leaf_classes, const Tensor& largest,
                                      const Tensor& targets, const Tensor& sums,
                                      const Tensor& gaps) {
  const int64_t leaves = (classes.count + leaf_classes - 1) / leaf_classes;
  if (leaves <= 1) return SumExponentials(logits, classes, largest, targets, sums, gaps);
  Fill(gaps, 0);  // all leaves but the target's have 0
  const Tensor sum = SumOverLeaves(*this, leaves, [&](int64_t leaf) {
    const int64_t first = leaf * leaf_classes;
    const int64_t count = std::min(leaf_classes, classes.count - first);
    const Tensor own_sums = EmptyLike(sums), own_gaps = EmptyLike(gaps);
    SumExponentials(TakeColumns(*this, logits, {{first, count}}), {classes.first + first, count},
                    largest, targets, own_sums, own_gaps);
    Add(gaps, own_gaps, gaps);
    return own_sums;
  });
  Copy(sum, sums);
}

}  // namespace lockstep
