#include "core/nn/loss.h"

#include <limits>
#include <utility>
#include <vector>

#include "core/nn/split.h"

namespace lockstep {

namespace {

// Number of classes in logits that are not split: all columns, but for padding that the pass knows.
int64_t WholeClasses(const SplitLogits& split, const Shape& logits) {
  return split.leaf_classes == 0 ? logits[-1] : split.classes.count;
}

// Whether one leaf of classes is here, and it is the only one.
bool IsWhole(const SplitLogits& split) {
  return split.group == nullptr && split.classes.count <= split.leaf_classes;
}

}  // namespace

RowStatistics StatisticsOf(Kernels& kernels, const SplitLogits& split, const Tensor& logits,
                           const Tensor& targets) {
  if (IsWhole(split)) return {};
  const auto& [group, classes, leaf_classes] = split;
  const Shape rows = {targets.elements()};
  const RowStatistics all = {kernels.Empty(rows), kernels.Empty(rows), kernels.Empty(rows)};
  kernels.LargestLogits(logits, classes, all.largest, Tensor());
  if (group != nullptr) group->Reduce(all.largest, SplitGroup::Reduction::kMax);
  kernels.SumExponentialsByLeaves(logits, classes, leaf_classes, all.largest, targets, all.sums,
                                  all.gaps);
  if (group != nullptr) {
    group->Reduce(all.sums, SplitGroup::Reduction::kSum);
    group->Reduce(all.gaps, SplitGroup::Reduction::kSum);
  }
  return all;
}

void LossOfRows(Kernels& kernels, const SplitLogits& split, const RowStatistics& statistics,
                const Tensor& logits, const Tensor& targets, float factor, const Tensor& losses,
                const Tensor& dlogits) {
  if (IsWhole(split)) {
    return kernels.SoftmaxCrossEntropy(logits, WholeClasses(split, logits.shape()), targets, factor,
                                       losses, dlogits);
  }
  kernels.SplitCrossEntropy(logits, split.classes, statistics.largest, statistics.sums,
                            statistics.gaps, targets, factor, losses, dlogits);
}

CrossEntropy SoftmaxCrossEntropy(Pass& pass, Variable logits, const Tensor& targets, float factor) {
  Kernels& k = pass.kernels();
  const RowStatistics statistics = StatisticsOf(k, pass.split_logits, logits.value, targets);
  CrossEntropy result{k.Empty({targets.elements()})};
  Tensor dlogits;
  if (logits.needs_gradient()) {
    dlogits = logits.value.shared() ? k.EmptyLike(logits.value) : logits.value;
  }
  LossOfRows(k, pass.split_logits, statistics, logits.value, targets, factor, result.losses,
             dlogits);
  if (logits.needs_gradient()) {
    pass.tape.RecordAlways(
        [&k, slot = logits.gradient, dlogits]() mutable { slot->Add(k, std::move(dlogits)); });
  }
  return result;
}

int64_t CountCorrect(Pass& pass, const Tensor& logits, const Tensor& targets) {
  Kernels& k = pass.kernels();
  const auto& [group, classes, leaf_classes] = pass.split_logits;
  if (group == nullptr) {
    return k.CountCorrect(logits, WholeClasses(pass.split_logits, logits.shape()), targets);
  }
  const int64_t rows = targets.elements();
  const Tensor largest = k.Empty({rows}), where = k.Empty({rows}, DType::kI32);
  k.LargestLogits(logits, classes, largest, where);
  std::vector<float> own(rows), best(rows);
  k.CopyToHost(largest, own.data());
  group->Reduce(largest, SplitGroup::Reduction::kMax);
  k.CopyToHost(largest, best.data());
  // Where several classes have the largest logit, the first counts. A member that has none of them
  // names no class.
  std::vector<int32_t> at(rows), wanted(rows);
  k.CopyToHost(where, at.data());
  for (int64_t r = 0; r < rows; ++r) {
    if (own[r] < best[r]) at[r] = std::numeric_limits<int32_t>::max();
  }
  k.CopyFromHost(at.data(), where);
  group->Reduce(where, SplitGroup::Reduction::kMin);
  k.CopyToHost(where, at.data());
  k.CopyToHost(targets, wanted.data());
  int64_t correct = 0;
  for (int64_t r = 0; r < rows; ++r) correct += at[r] == wanted[r];
  return correct;
}

}  // namespace lockstep
