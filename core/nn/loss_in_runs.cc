#include "core/nn/loss_in_runs.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/autograd/weight_gradients.h"
#include "core/base/sum_tree.h"
#include "core/nn/loss.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// Consecutive rows of one token leaf, and what forward keeps of their logits.
struct Run {
  Range rows;
  RowStatistics statistics = {};

  bool IsIn(const LeafRows& leaf) const {
    return !leaf || (rows.first >= leaf->first && rows.first < leaf->first + leaf->count);
  }
};

// The head of a model and all rows that it sees in a pass.
struct Head {
  Kernels& kernels;
  Leaf& weight;
  const FeatureLeaves outputs;
  const SplitLogits split;
  const LossInRuns loss;
  const Tensor x;
  std::vector<Run> runs = {};

  Tensor LogitsOf(const Range& rows) const {
    const Tensor logits = kernels.Empty({rows.count, weight.value.shape()[0]}, x.dtype());
    kernels.Linear(RowsOf(kernels, x, rows), weight.value, Tensor(), Tensor(), logits);
    return logits;
  }
  Tensor TargetsOf(const Range& rows) const {
    return RowsOf(kernels, loss.targets.Reshape({loss.targets.elements()}), rows);
  }
};

// No run has rows of two token leaves.
std::vector<Run> RunsOf(const Tape& tape, int64_t rows, int64_t rows_of_run) {
  std::vector<Run> runs;
  for (const LeafRows& leaf : TokenLeaves(tape, rows)) {
    const Range all = leaf.value_or(Range{.first = 0, .count = rows});
    for (int64_t done = 0; done < all.count; done += rows_of_run) {
      runs.push_back({{all.first + done, std::min(rows_of_run, all.count - done)}});
    }
  }
  return runs;
}

// The sum of the runs' gradients of a weight along the tree over the runs of a token leaf, in fp32,
// which is complete before it is added to what the gradient holds.
class SumOverRuns {
 public:
  SumOverRuns(Kernels& kernels, const Tensor& gradient, Write write, int64_t runs)
      : kernels_(kernels), gradient_(gradient), write_(write), runs_(runs), stack_(runs) {}

  // Where the next run's gradient goes, and how; undefined where none is wanted.
  Leaf::Destination Next() {
    if (!gradient_.defined()) return {Tensor(), Write::kOverwrite};
    if (runs_ == 1) return {gradient_, write_};
    const bool becomes_the_sum =
        nodes_.empty() && write_ == Write::kOverwrite && gradient_.dtype() == DType::kF32;
    nodes_.push_back(becomes_the_sum
                         ? gradient_
                         : kernels_.Empty(gradient_.shape(), DType::kF32, MemoryClass::kWorkspace));
    return {nodes_.back(), Write::kOverwrite};
  }
  // After the run's gradient has been written.
  void Close() {
    if (nodes_.empty()) return;
    for (int64_t merged = stack_.Push(); merged > 0; --merged) {
      const Tensor right = std::move(nodes_.back());
      nodes_.pop_back();
      kernels_.Add(nodes_.back(), right, nodes_.back());
    }
  }
  void Finish() {
    if (nodes_.empty() || nodes_[0].same_storage(gradient_)) return;
    if (write_ == Write::kOverwrite) {
      kernels_.Cast(nodes_[0], gradient_);
    } else {
      kernels_.Add(gradient_, nodes_[0], gradient_);
    }
  }

 private:
  Kernels& kernels_;
  const Tensor gradient_;
  const Write write_;
  const int64_t runs_;
  TreeStack stack_;
  std::vector<Tensor> nodes_;
};

// The gradients of the rows of `leaf`. dx, of all rows, may be undefined.
void BackwardOfLeaf(const Head& head, const LeafRows& leaf, const Destinations& destinations,
                    const Tensor& dx) {
  Kernels& k = head.kernels;
  const auto is_here = [&](const Run& run) { return run.IsIn(leaf); };
  SumOverRuns sum(k, destinations[0], destinations.write,
                  std::count_if(head.runs.begin(), head.runs.end(), is_here));
  for (const Run& run : head.runs) {
    if (!is_here(run)) continue;
    const Tensor dlogits = head.LogitsOf(run.rows);
    LossOfRows(k, head.split, run.statistics, dlogits, head.TargetsOf(run.rows), head.loss.factor,
               k.Empty({run.rows.count}), dlogits);
    const auto [dw, write] = sum.Next();
    const RowsToFill own_dx(k, dx, run.rows);
    const Tensor x = RowsOf(k, head.x, run.rows);
    if (head.outputs.empty()) {
      k.LinearBackward(dlogits, x, head.weight.value, write, own_dx.tensor(), dw, Tensor());
    } else {
      k.LinearBackwardByLeaves(dlogits, x, head.weight.value, head.outputs, write, own_dx.tensor(),
                               dw, Tensor());
    }
    own_dx.Put();
    sum.Close();
  }
  sum.Finish();
}

}  // namespace

Variable CrossEntropyInRuns(Pass& pass, const Variable& x, Leaf& weight,
                            const FeatureLeaves& outputs) {
  Tape& tape = pass.tape;
  Kernels& k = pass.kernels();
  const LossInRuns& loss = *pass.loss_in_runs;
  const int64_t rows = x.shape().rows();
  if (!loss.targets.defined()) return Variable(k.Empty({rows}));
  CHECK_EQ(loss.targets.elements(), rows);
  const auto head = std::make_shared<Head>(
      Head{k, weight, outputs, pass.split_logits, loss, x.value, RunsOf(tape, rows, loss.rows)});
  const Tensor losses = k.Empty({rows});
  for (Run& run : head->runs) {
    const Tensor logits = head->LogitsOf(run.rows), targets = head->TargetsOf(run.rows);
    run.statistics = StatisticsOf(k, head->split, logits, targets);
    const RowsToFill own(k, losses, run.rows);
    LossOfRows(k, head->split, run.statistics, logits, targets, loss.factor, own.tensor(),
               Tensor());
    own.Put();
    if (loss.correct != nullptr) *loss.correct += CountCorrect(pass, logits, targets);
  }
  Variable out = tape.Result(losses, x.needs_gradient() || Trains(&weight));
  tape.Record(out, {&weight}, [&tape, &k, head, x = x.gradient](const Tensor&) {
    tape.ComputeGradients({&head->weight}, [&tape, &k, head, x](Tape::Half half) {
      const Tensor dx = half.inputs && x != nullptr ? k.EmptyLike(head->x) : Tensor();
      ForTokenLeaves(tape, half, {&head->weight}, head->x.shape().rows(),
                     [&](const LeafRows& leaf, const Destinations& destinations) {
                       BackwardOfLeaf(*head, leaf, destinations, dx);
                     });
      if (dx.defined()) x->Add(k, dx);
    });
  });
  return out;
}

CrossEntropy StartFromLosses(Pass& pass, const Variable& losses) {
  if (losses.needs_gradient()) {
    pass.tape.RecordAlways([&k = pass.kernels(), slot = losses.gradient, shape = losses.shape(),
                            factor = pass.loss_in_runs->factor] {
      const Tensor start = k.Empty(shape);
      k.Fill(start, factor);
      slot->Add(k, start);
    });
  }
  return {losses.value};
}

}  // namespace lockstep
