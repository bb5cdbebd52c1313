#include "core/autograd/experts.h"

#include <algorithm>
#include <cmath>
#include <iterator>  // std::ssize
#include <utility>

#include "core/autograd/expert_weights.h"
#include "core/autograd/weight_gradients.h"
#include "core/base/parallel.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// The choices of all rows, on the host. Kernels that skip their loops choose nothing: experts then
// get rows in turns.
std::vector<int32_t> ChoicesOf(Kernels& kernels, const Routing& routing, const Tensor& chosen) {
  std::vector<int32_t> choices(static_cast<size_t>(chosen.elements()));
  if (SkipsLoops()) {
    for (int64_t i = 0; i < std::ssize(choices); ++i) {
      choices[i] = static_cast<int32_t>(i % routing.experts);
    }
    return choices;
  }
  kernels.CopyToHost(chosen, choices.data());
  return choices;
}

// Choices in which each leaf names each expert as often as `counts` [experts * leaves] says, by
// (expert, leaf). All leaves have the same number of choices.
std::vector<int32_t> ChoicesWith(const std::vector<int64_t>& counts, int64_t leaves) {
  std::vector<int32_t> choices;
  const int64_t experts = std::ssize(counts) / leaves;
  for (int64_t leaf = 0; leaf < leaves; ++leaf) {
    for (int64_t expert = 0; expert < experts; ++expert) {
      choices.insert(choices.end(), static_cast<size_t>(counts[expert * leaves + leaf]),
                     static_cast<int32_t>(expert));
    }
  }
  return choices;
}

Tensor Uploaded(Kernels& kernels, const Shape& shape, const std::vector<int32_t>& values) {
  Tensor tensor = kernels.Empty(shape, DType::kI32);
  kernels.CopyFromHost(values.data(), tensor);
  return tensor;
}

// The gradient of the auxiliary loss by each row's normalised scores.
Tensor BalanceOf(Kernels& kernels, const ExpertRows& rows, const RouteOptions& options) {
  if (options.auxiliary == 0) return {};
  const int64_t experts = rows.experts(),
                all_rows = rows.rows() * options.run_ranks.size * options.ranks.size;
  const int64_t choices = all_rows * options.routing.chosen;
  std::vector<float> slopes;
  for (const int64_t count : rows.counts_of_all()) {
    const double fraction = static_cast<double>(count) / static_cast<double>(choices);
    slopes.push_back(static_cast<float>(static_cast<double>(options.auxiliary) *
                                        static_cast<double>(experts) * fraction /
                                        static_cast<double>(all_rows)));
  }
  Tensor balance = kernels.Empty({experts});
  kernels.CopyFromHost(slopes.data(), balance);
  return balance;
}

// Rows x [dispatched, width] in the order that one of the two names; the other is its inverse.
using Places = const Tensor& (ReceivedRows::*)() const;
Variable Permute(Tape& tape, const Variable& x, const SharedReceivedRows& rows, Places places,
                 Places inverse) {
  Kernels& k = tape.kernels();
  const auto take = [&k, rows](const Tensor& from, Places in_order) {
    const Shape shape = {rows->dispatched(), from.shape()[-1]};
    Tensor to = k.Empty(shape, from.dtype());
    k.Embedding(((*rows).*in_order)(), from.Reshape(shape), to);
    return to;
  };
  Variable out = tape.Result(take(x.value, places), x.needs_gradient());
  tape.Record(
      out, [&k, take, inverse, x = x.gradient](const Tensor& dy) { x->Add(k, take(dy, inverse)); });
  return out;
}

std::optional<int64_t> CapacityOf(const RouteOptions& options, int64_t rows) {
  if (options.capacity_factor == 0) return std::nullopt;
  const double even = static_cast<double>(rows * options.routing.chosen) /
                      static_cast<double>(options.routing.experts);
  return static_cast<int64_t>(std::ceil(options.capacity_factor * even));
}

}  // namespace

ExpertRanges::ExpertRanges(int64_t experts, int64_t leaves, const std::vector<int64_t>& counts,
                           int64_t dispatched)
    : experts_(experts), leaves_(leaves), dispatched_(dispatched) {
  CHECK_EQ(std::ssize(counts), experts * leaves);
  for (const int64_t count : counts) first_.push_back(first_.back() + count);
  CHECK_LE(used(), dispatched);
}

Range ExpertRanges::Of(int64_t expert) const {
  const int64_t begin = first_[expert * leaves_];
  return {.first = begin, .count = first_[(expert + 1) * leaves_] - begin};
}

Range ExpertRanges::Of(int64_t expert, int64_t leaf) const {
  const int64_t begin = first_[expert * leaves_ + leaf];
  return {.first = begin, .count = first_[expert * leaves_ + leaf + 1] - begin};
}

ExpertRows::ExpertRows(Kernels& kernels, const Routing& routing, const Tensor& chosen,
                       int64_t leaf_rows, std::optional<int64_t> capacity, const RowRanks& ranks,
                       const RowRanks& run_ranks, RoutingNotes* notes)
    : counts_(static_cast<size_t>(routing.experts)) {
  std::vector<int32_t> choices = ChoicesOf(kernels, routing, chosen);
  const int64_t rows = chosen.shape()[0], k = routing.chosen;
  const int64_t leaves = leaf_rows > 0 ? rows / leaf_rows : 1;
  const auto leaf_of = [&](int64_t choice) { return leaves == 1 ? 0 : choice / k / leaf_rows; };
  std::vector<int64_t> named(
      static_cast<size_t>(routing.experts * leaves));  // before any is dropped
  for (int64_t i = 0; i < std::ssize(choices); ++i) ++named[choices[i] * leaves + leaf_of(i)];
  counts_of_run_ranks_ = run_ranks.size > 1 ? run_ranks.gather(named) : named;
  if (notes != nullptr) notes->Meet(counts_of_run_ranks_);
  const auto own = counts_of_run_ranks_.begin() + run_ranks.index * std::ssize(named);
  if (SkipsLoops()) choices = ChoicesWith({own, own + std::ssize(named)}, leaves);
  for (int64_t i = 0; i < std::ssize(counts_of_run_ranks_); ++i) {
    counts_[i / leaves % routing.experts] += counts_of_run_ranks_[i];
  }
  // Choices of each expert by earlier runs; they take the expert's places first.
  std::vector<int64_t> before(counts_.size());
  counts_of_all_ = counts_;
  if (ranks.size > 1) {
    std::vector<int64_t> gathered = ranks.gather(counts_);
    if (notes != nullptr) notes->Meet(gathered);
    std::fill(counts_of_all_.begin(), counts_of_all_.end(), 0);
    for (size_t i = 0; i < gathered.size(); ++i) {
      const size_t expert = i % counts_.size();
      counts_of_all_[expert] += gathered[i];
      if (i / counts_.size() < static_cast<size_t>(ranks.index)) before[expert] += gathered[i];
    }
  }
  // Rank by rank within the run: an expert keeps the first choices that it has room for.
  std::vector<int64_t> before_here(counts_.size());
  for (int64_t i = 0; capacity && i < std::ssize(counts_of_run_ranks_); ++i) {
    const int64_t expert = i / leaves % routing.experts;
    if (i == run_ranks.index * std::ssize(named)) before_here = before;
    int64_t& count = counts_of_run_ranks_[i];
    const int64_t kept = std::clamp<int64_t>(*capacity - before[expert], 0, count);
    before[expert] += count;
    count = kept;
  }
  std::vector<char> is_kept(choices.size());
  for (int64_t i = 0; i < std::ssize(choices); ++i) {
    is_kept[i] = !capacity || before_here[choices[i]]++ < *capacity;
  }
  const std::vector<int64_t> kept(own, own + std::ssize(named));
  ExpertRanges::operator=(ExpertRanges(routing.experts, leaves, kept, std::ssize(choices)));
  std::vector<int64_t> next;
  for (int64_t i = 0; i < std::ssize(kept); ++i) next.push_back(Of(i / leaves, i % leaves).first);
  std::vector<int32_t> sources(choices.size(), -1), places(choices.size(), -1);
  for (int64_t i = 0; i < std::ssize(choices); ++i) {
    if (!is_kept[i]) continue;
    const int64_t place = next[choices[i] * leaves + leaf_of(i)]++;
    sources[place] = static_cast<int32_t>(i / k);
    places[i] = static_cast<int32_t>(place);
  }
  sources_ = Uploaded(kernels, {rows * k}, sources);
  places_ = Uploaded(kernels, {rows, k}, places);
}

ReceivedRows::ReceivedRows(Kernels& kernels, int64_t ranks, int64_t experts, int64_t leaves,
                           const std::vector<int64_t>& counts,
                           std::optional<int64_t> rows_of_rank) {
  CHECK_EQ(std::ssize(counts), ranks * experts * leaves);
  std::vector<int64_t> ordered(counts.size());
  int64_t all = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const int64_t first = all;
    for (int64_t expert = 0; expert < experts; ++expert) {
      for (int64_t leaf = 0; leaf < leaves; ++leaf) {
        const int64_t count = counts[(rank * experts + expert) * leaves + leaf];
        ordered[(expert * ranks + rank) * leaves + leaf] = count;
        all += count;
      }
    }
    CHECK_LE(all - first, rows_of_rank.value_or(all)) << "rows that have not come";
    if (rows_of_rank) all = first + *rows_of_rank;
    from_.push_back({.first = first, .count = all - first});
  }
  ExpertRanges::operator=(ExpertRanges(experts, ranks * leaves, ordered, all));
  std::vector<int32_t> arrivals(static_cast<size_t>(all)), places;
  int64_t unused = used();
  for (int64_t rank = 0; rank < ranks; ++rank) {
    for (int64_t expert = 0; expert < experts; ++expert) {
      for (int64_t leaf = 0; leaf < leaves; ++leaf) {
        const Range own = Of(expert, rank * leaves + leaf);
        for (int64_t row = own.first; row < own.first + own.count; ++row) {
          arrivals[row] = static_cast<int32_t>(places.size());
          places.push_back(static_cast<int32_t>(row));
        }
      }
    }
    while (std::ssize(places) < from_[rank].first + from_[rank].count) {
      arrivals[unused] = static_cast<int32_t>(places.size());
      places.push_back(static_cast<int32_t>(unused++));
    }
  }
  arrivals_ = Uploaded(kernels, {all}, arrivals);
  places_ = Uploaded(kernels, {all}, places);
}

RoutedRows Route(Tape& tape, const Variable& logits, const RouteOptions& options) {
  Kernels& k = tape.kernels();
  const Shape shape = {logits.shape().rows(), options.routing.chosen};
  const int64_t all_rows = shape[0] * options.run_ranks.size * options.ranks.size;
  const Tensor chosen = k.Empty(shape, DType::kI32), weights = k.Empty(shape);
  k.Route(options.routing, logits.value, options.bias, chosen, weights);
  auto rows = std::make_shared<const ExpertRows>(k, options.routing, chosen, tape.leaf_rows(),
                                                 CapacityOf(options, all_rows), options.ranks,
                                                 options.run_ranks, options.notes);
  Variable out = tape.Result(weights, logits.needs_gradient());
  const Tensor balance = out.needs_gradient() ? BalanceOf(k, *rows, options) : Tensor();
  tape.Record(out, [&k, logits, chosen, balance, routing = options.routing](const Tensor& dy) {
    Tensor dlogits = k.EmptyLike(logits.value);
    k.RouteBackward(routing, logits.value, chosen, dy, balance, dlogits);
    logits.gradient->Add(k, std::move(dlogits));
  });
  return {std::move(out), std::move(rows)};
}

Variable Dispatch(Tape& tape, const Variable& x, const SharedRows& rows) {
  Kernels& k = tape.kernels();
  const int64_t width = x.shape()[-1];
  Tensor y = k.Empty({rows->dispatched(), width}, x.value.dtype());
  k.CombineRows(x.value, rows->sources(), Tensor(), Tensor(), y);
  Variable out = tape.Result(y, x.needs_gradient());
  tape.Record(out, [&k, rows, shape = x.shape(), x = x.gradient](const Tensor& dy) {
    Tensor dx = k.Empty(shape, dy.dtype());
    k.CombineRows(dy, rows->places(), Tensor(), Tensor(), dx);
    x->Add(k, std::move(dx));
  });
  return out;
}

Variable OrderArrivals(Tape& tape, const Variable& x, const SharedReceivedRows& rows) {
  return Permute(tape, x, rows, &ReceivedRows::arrivals, &ReceivedRows::places);
}

Variable BackToArrivals(Tape& tape, const Variable& x, const SharedReceivedRows& rows) {
  return Permute(tape, x, rows, &ReceivedRows::places, &ReceivedRows::arrivals);
}

Variable ExpertLinear(Tape& tape, const Variable& x, Leaf& w, const SharedRanges& rows,
                      const FeatureLeaves& outputs) {
  Kernels& k = tape.kernels();
  const auto weight_of = [&k, &w, rows](int64_t expert) {
    return RowsOf(k, w.value, WeightRows(w.value, *rows, expert));
  };
  Tensor y = k.Empty({rows->dispatched(), w.value.shape()[0] / rows->experts()}, x.value.dtype());
  ForExperts(
      *rows, std::nullopt,
      [&](int64_t expert, const Range& own) {
        const RowsToFill own_y(k, y, own);
        k.Linear(RowsOf(k, x.value, own), weight_of(expert), Tensor(), Tensor(), own_y.tensor());
        own_y.Put();
      },
      [](int64_t) {});
  FillUnused(k, *rows, y);
  Variable out = tape.Result(y, x.needs_gradient() || Trains(&w));
  auto backward = [&tape, &k, x, &w, rows, weight_of, outputs](const Tensor& dy) {
    tape.ComputeGradients({&w}, [&tape, &k, x, &w, rows, weight_of, outputs, dy](Tape::Half half) {
      Tensor dx = half.inputs && x.needs_gradient() ? k.EmptyLike(x.value) : Tensor();
      const auto of_leaf = [&](std::optional<int64_t> leaf, const Destinations& d) {
        const auto of_expert = [&](int64_t expert, const Range& own) {
          const RowsToFill own_dx(k, dx, own);
          const ExpertGradient dw(k, d, *rows, expert);
          const Tensor own_dy = RowsOf(k, dy, own), own_x = RowsOf(k, x.value, own);
          if (outputs.empty()) {
            k.LinearBackward(own_dy, own_x, weight_of(expert), d.write, own_dx.tensor(),
                             dw.tensor(), Tensor());
          } else {
            k.LinearBackwardByLeaves(own_dy, own_x, weight_of(expert), outputs, d.write,
                                     own_dx.tensor(), dw.tensor(), Tensor());
          }
          dw.Put();
          own_dx.Put();
        };
        ForExperts(*rows, leaf, of_expert,
                   [&](int64_t expert) { AddNothing(k, d, *rows, expert); });
      };
      ForLeaves(tape, half, {&w}, rows->leaves(), of_leaf);
      if (!dx.defined()) return;
      FillUnused(k, *rows, dx);
      x.gradient->Add(k, std::move(dx));
    });
  };
  tape.Record(out, {&w}, std::move(backward));
  return out;
}

Variable ExpertSwiGluLinear(Tape& tape, const Variable& pre, Leaf& w, const SharedRanges& rows,
                            const FeatureLeaves& inputs) {
  Kernels& k = tape.kernels();
  const auto activate = [&k, pre = pre.value] {
    Tensor hidden = k.Empty(pre.shape().With(-1, pre.shape()[-1] / 2), pre.dtype());
    k.SwiGlu(pre, hidden);
    return hidden;
  };
  const auto weight_of = [&k, &w, rows](int64_t expert) {
    return RowsOf(k, w.value, WeightRows(w.value, *rows, expert));
  };
  Tensor y = k.Empty({rows->dispatched(), w.value.shape()[1]}, pre.value.dtype());
  {
    const Tensor hidden = activate();
    // The product is the one that LinearBackward makes an input's gradient with.
    ForExperts(
        *rows, std::nullopt,
        [&](int64_t expert, const Range& own) {
          const RowsToFill own_y(k, y, own);
          const Tensor own_hidden = RowsOf(k, hidden, own);
          if (inputs.empty()) {
            k.LinearBackward(own_hidden, Tensor(), weight_of(expert), Write::kOverwrite,
                             own_y.tensor(), Tensor(), Tensor());
          } else {
            k.LinearBackwardByLeaves(own_hidden, Tensor(), weight_of(expert), inputs,
                                     Write::kOverwrite, own_y.tensor(), Tensor(), Tensor());
          }
          own_y.Put();
        },
        [](int64_t) {});
  }
  FillUnused(k, *rows, y);
  Variable out = tape.Result(y, pre.needs_gradient() || Trains(&w));
  auto backward = [&tape, &k, activate, pre, &w, rows, weight_of](const Tensor& dy) {
    tape.ComputeGradients(
        {&w}, [&tape, &k, activate, pre, &w, rows, weight_of, dy](Tape::Half half) {
          const Tensor hidden = half.weights && Trains(&w) ? activate() : Tensor();
          const Tensor dhidden =
              half.inputs && pre.needs_gradient()
                  ? k.Empty(pre.shape().With(-1, pre.shape()[-1] / 2), pre.value.dtype())
                  : Tensor();
          const auto of_leaf = [&](std::optional<int64_t> leaf, const Destinations& d) {
            const auto of_expert = [&](int64_t expert, const Range& own) {
              const Tensor own_dy = RowsOf(k, dy, own);
              if (dhidden.defined()) {
                const RowsToFill own_dhidden(k, dhidden, own);
                k.Linear(own_dy, weight_of(expert), Tensor(), Tensor(), own_dhidden.tensor());
                own_dhidden.Put();
              }
              const ExpertGradient dw(k, d, *rows, expert);
              if (!dw.tensor().defined()) return;
              k.LinearBackward(RowsOf(k, hidden, own), own_dy, weight_of(expert), d.write, Tensor(),
                               dw.tensor(), Tensor());
              dw.Put();
            };
            ForExperts(*rows, leaf, of_expert,
                       [&](int64_t expert) { AddNothing(k, d, *rows, expert); });
          };
          ForLeaves(tape, half, {&w}, rows->leaves(), of_leaf);
          if (!dhidden.defined()) return;
          FillUnused(k, *rows, dhidden);
          Tensor dpre = k.EmptyLike(pre.value);
          k.SwiGluBackward(pre.value, dhidden, dpre);
          pre.gradient->Add(k, std::move(dpre));
        });
  };
  tape.Record(out, {&w}, std::move(backward));
  return out;
}

Variable Combine(Tape& tape, const Variable& x, const RoutedRows& routed,
                 const Variable& residual) {
  Kernels& k = tape.kernels();
  const auto& [weights, rows] = routed;
  Tensor y = k.EmptyLike(residual.value);
  k.CombineRows(x.value, rows->places(), weights.value, residual.value, y);
  Variable out =
      tape.Result(y, x.needs_gradient() || weights.needs_gradient() || residual.needs_gradient());
  tape.Record(out,
              [&k, x, weights = weights, rows = rows, residual = residual.gradient](Tensor dy) {
                if (residual != nullptr) residual->Add(k, dy);
                if (!x.needs_gradient() && !weights.needs_gradient()) return;
                Tensor dx = k.EmptyLike(x.value), dweights = k.EmptyLike(weights.value);
                k.CombineRowsBackward(dy, x.value, rows->places(), weights.value, dx, dweights);
                FillUnused(k, *rows, dx);
                if (x.needs_gradient()) x.gradient->Add(k, std::move(dx));
                if (weights.needs_gradient()) weights.gradient->Add(k, std::move(dweights));
              });
  return out;
}

}  // namespace lockstep
