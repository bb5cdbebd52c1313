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

}  // namespace

CrossEntropy SoftmaxCrossEntropy(Pass& pass, Variable logits, const Tensor& targets, float factor) {
  Tape& tape = pass.tape;
  const auto& [group, classes, leaf_classes] = pass.split_logits;
  if (group == nullptr && classes.count <= leaf_classes) {  // one leaf, or no cut at all
    const int64_t count = WholeClasses(pass.split_logits, logits.shape());
    return SoftmaxCrossEntropy(tape, std::move(logits), count, targets, factor);
  }
  Kernels& k = pass.kernels();
  const Shape rows = {targets.elements()};
  const Tensor largest = k.Empty(rows), sums = k.Empty(rows), gaps = k.Empty(rows);
  k.LargestLogits(logits.value, classes, largest, Tensor());
  if (group != nullptr) group->Reduce(largest, SplitGroup::Reduction::kMax);
  k.SumExponentialsByLeaves(logits.value, classes, leaf_classes, largest, targets, sums, gaps);
  if (group != nullptr) {
    group->Reduce(sums, SplitGroup::Reduction::kSum);
    group->Reduce(gaps, SplitGroup::Reduction::kSum);
  }
  CrossEntropy result{k.Empty(rows)};
  Tensor dlogits;
  if (logits.needs_gradient()) {
    dlogits = logits.value.shared() ? k.EmptyLike(logits.value) : logits.value;
  }
  k.SplitCrossEntropy(logits.value, classes, largest, sums, gaps, targets, factor, result.losses,
                      dlogits);
  if (logits.needs_gradient()) {
    tape.RecordAlways(
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
  // Of several classes with the largest logit the first counts: of members without one, none.
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
