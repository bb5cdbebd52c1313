#include "core/autograd/weight_gradients.h"

#include <algorithm>  // std::any_of
#include <iterator>   // std::ssize
#include <memory>
#include <utility>

#include "core/base/sum_tree.h"
#include "core/kernels/feature_leaves.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

using Destination = Leaf::Destination;

// What a kernel writes in one mode: where some destinations are out of step, as where operations
// share one of their leaves but not the others, it adds to zeros.
Destinations InOneMode(Kernels& kernels, const std::vector<Destination>& all) {
  Destinations destinations;
  for (const Destination& one : all) {
    if (one.write == Write::kAccumulate) destinations.write = Write::kAccumulate;
    destinations.tensors.push_back(one.tensor);
  }
  if (destinations.write == Write::kOverwrite) return destinations;
  for (const Destination& one : all) {
    if (one.tensor.defined() && one.write == Write::kOverwrite) kernels.Fill(one.tensor, 0);
  }
  return destinations;
}

// The contributions of token leaves to one leaf of the tape, in order.
class Contributions {
 public:
  Contributions(Kernels& kernels, Leaf& leaf, int64_t token_leaves)
      : kernels_(kernels), leaf_(leaf), stack_(token_leaves) {}

  Destination Next() {
    const int64_t number = next_++;
    if (leaf_.has_accumulators()) return leaf_.NextContributionOf(number, kernels_);
    // The first one becomes the sum.
    if (number == 0) {
      const Destination own = leaf_.NextContribution(kernels_);
      CHECK(own.write == Write::kOverwrite) << "contributions beside those of token leaves";
      nodes_.push_back(own.tensor);
    } else {
      nodes_.push_back(
          kernels_.Empty(leaf_.value.shape(), leaf_.gradient_dtype, MemoryClass::kWorkspace));
    }
    return {nodes_.back(), Write::kOverwrite};
  }
  // After it has been written.
  void Close() {
    if (leaf_.has_accumulators()) return;
    for (int64_t merged = stack_.Push(); merged > 0; --merged) {
      const Tensor right = std::move(nodes_.back());
      nodes_.pop_back();
      kernels_.Add(nodes_.back(), right, nodes_.back());
    }
  }

 private:
  Kernels& kernels_;
  Leaf& leaf_;
  TreeStack stack_;
  std::vector<Tensor> nodes_;
  int64_t next_ = 0;
};

int64_t WidthOf(const Tensor& x) { return x.shape().rank() == 1 ? 1 : x.shape()[-1]; }

Shape ShapeOf(const Tensor& x, const Range& rows) {
  return x.shape().rank() == 1 ? Shape({rows.count}) : Shape({rows.count, WidthOf(x)});
}

Tensor AsRows(const Tensor& x) { return x.Reshape({x.elements() / WidthOf(x), WidthOf(x)}); }

bool BeginsOnBoundary(const Tensor& x, const Range& rows) {
  return rows.first * WidthOf(x) * SizeOf(x.dtype()) % kAlignment == 0;
}

Tensor ViewOf(const Tensor& x, const Range& rows) {
  return x.View(rows.first * WidthOf(x), ShapeOf(x, rows));
}

}  // namespace

Destinations NextContributions(Kernels& kernels, Tape::Half half,
                               std::initializer_list<Leaf*> leaves) {
  std::vector<Destination> all;
  for (Leaf* leaf : leaves) {
    all.push_back(half.weights && Trains(leaf) ? leaf->NextContribution(kernels)
                                               : Destination{Tensor(), Write::kOverwrite});
  }
  return InOneMode(kernels, all);
}

std::vector<LeafRows> TokenLeaves(const Tape& tape, int64_t rows) {
  if (tape.leaf_rows() == 0 || tape.leaf_rows() == rows) return {std::nullopt};
  CHECK_EQ(rows % tape.leaf_rows(), 0) << rows << " rows are not of whole token leaves";
  std::vector<LeafRows> leaves;
  for (int64_t first = 0; first < rows; first += tape.leaf_rows()) {
    leaves.push_back(Range{.first = first, .count = tape.leaf_rows()});
  }
  return leaves;
}

void ForTokenLeaves(
    Tape& tape, Tape::Half half, std::initializer_list<Leaf*> leaves, int64_t rows,
    const std::function<void(const LeafRows& rows, const Destinations& destinations)>& compute) {
  const std::vector<LeafRows> token_leaves = TokenLeaves(tape, rows);
  ForLeaves(tape, half, leaves, std::ssize(token_leaves),
            [&](std::optional<int64_t> leaf, const Destinations& destinations) {
              compute(leaf ? token_leaves[*leaf] : std::nullopt, destinations);
            });
}

void ForLeaves(Tape& tape, Tape::Half half, std::initializer_list<Leaf*> leaves, int64_t count,
               const std::function<void(std::optional<int64_t> leaf,
                                        const Destinations& destinations)>& compute) {
  Kernels& kernels = tape.kernels();
  const bool trains = half.weights && std::any_of(leaves.begin(), leaves.end(), Trains);
  if (!trains || count == 1) {
    return compute(std::nullopt, NextContributions(kernels, half, leaves));
  }
  std::vector<std::unique_ptr<Contributions>> contributions;
  for (Leaf* leaf : leaves) {
    contributions.push_back(Trains(leaf) ? std::make_unique<Contributions>(kernels, *leaf, count)
                                         : nullptr);
  }
  for (int64_t own = 0; own < count; ++own) {
    std::vector<Destination> all;
    for (const auto& of_leaf : contributions) {
      all.push_back(of_leaf ? of_leaf->Next() : Destination{Tensor(), Write::kOverwrite});
    }
    compute(own, InOneMode(kernels, all));
    for (const auto& of_leaf : contributions) {
      if (of_leaf) of_leaf->Close();
    }
  }
}

Tensor RowsOf(Kernels& kernels, const Tensor& x, const LeafRows& rows) {
  if (!x.defined() || !rows) return x;
  if (BeginsOnBoundary(x, *rows)) return ViewOf(x, *rows);
  return TakeRows(kernels, AsRows(x), {*rows}).Reshape(ShapeOf(x, *rows));
}

RowsToFill::RowsToFill(Kernels& kernels, const Tensor& whole, const LeafRows& rows)
    : kernels_(kernels), whole_(whole), own_(whole), rows_(rows) {
  if (!whole.defined() || !rows) return;
  own_ = BeginsOnBoundary(whole, *rows)
             ? ViewOf(whole, *rows)
             : kernels.Empty(ShapeOf(whole, *rows), whole.dtype(), MemoryClass::kWorkspace);
}

void RowsToFill::Put() const {
  if (!whole_.defined() || own_.same_storage(whole_)) return;
  PutRows(kernels_, own_, {*rows_}, AsRows(whole_));
}

}  // namespace lockstep
