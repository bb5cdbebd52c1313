// Mixtures of experts (Shazeer et al., 2017): rows go to experts that a router chooses for them,
// and what these make of a row is added up again.
//
//   RoutedRows routed = Route(tape, logits, {.routing = routing});
//   Variable sent = Dispatch(tape, x, routed.rows);               // ordered by expert
//   Variable pre = ExpertLinear(tape, sent, gate_up, routed.rows);
//   Variable made = ExpertSwiGluLinear(tape, pre, down, routed.rows);
//   Variable y = Combine(tape, made, routed, residual);
//
// docs/numerics.md, "Experts", says in what order sums are made. What an expert makes of a row does
// not depend on the rows beside it, nor on which other experts are here.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/autograd/leaf.h"
#include "core/autograd/routing_notes.h"
#include "core/autograd/tape.h"
#include "core/autograd/variable.h"
#include "core/kernels/kernels.h"

namespace lockstep {

// Which rows of a dispatched tensor are of which expert: ordered by (expert, leaf), where a leaf is
// what contributes to a weight's gradient by itself.
class ExpertRanges {
 public:
  ExpertRanges() = default;
  // `counts` [experts * leaves]: how many rows each expert has of each leaf, by (expert, leaf).
  // `dispatched`: rows of the tensor, of which those behind all counts are not in use.
  ExpertRanges(int64_t experts, int64_t leaves, const std::vector<int64_t>& counts,
               int64_t dispatched);

  int64_t experts() const { return experts_; }
  int64_t leaves() const { return leaves_; }
  int64_t dispatched() const { return dispatched_; }
  int64_t used() const { return first_.back(); }

  // Dispatched rows of an expert: all, or those of one leaf.
  Range Of(int64_t expert) const;
  Range Of(int64_t expert, int64_t leaf) const;

 private:
  int64_t experts_ = 0, leaves_ = 1, dispatched_ = 0;
  std::vector<int64_t> first_ = {0};  // of each (expert, leaf), and behind the last one
};
using SharedRanges = std::shared_ptr<const ExpertRanges>;

// Ranks that each have a run of a micro-batch's rows, all as many.
struct RowRanks {
  int size = 1;
  int index = 0;
  // The numbers of all ranks, one rank's behind those of the one before. Called by all of them.
  std::function<std::vector<int64_t>(const std::vector<int64_t>& numbers)> gather = nullptr;
};

// Which rows go to which experts. A dispatched tensor has one row for each of a row's choices,
// ordered by (expert, row, choice); rows stand for tokens in the order of memory, so that those of
// a token leaf are together: these are the leaves. Choices that exceed an expert's capacity are
// dropped, and leave rows that are not in use. Several ranks may each have some leaves of a run of
// rows, whose counts all of them know.
class ExpertRows : public ExpertRanges {
 public:
  // chosen [rows, k], i32, as Kernels::Route writes it. `leaf_rows`: rows of a token leaf; 0: they
  // are not cut. `capacity`: the most choices that an expert takes, the first ones of all; none:
  // as many as there are. `run_ranks`: those that divide the run of rows; `ranks`: those that have
  // the runs before and behind it, where choices of all of them are to be compared. `notes` meets
  // the counts; null: nobody does. Waits for the device.
  ExpertRows(Kernels& kernels, const Routing& routing, const Tensor& chosen, int64_t leaf_rows,
             std::optional<int64_t> capacity, const RowRanks& ranks = {},
             const RowRanks& run_ranks = {}, RoutingNotes* notes = nullptr);

  int64_t rows() const { return places_.shape()[0]; }
  // By expert, how many choices of the run named it, dropped ones included.
  const std::vector<int64_t>& counts() const { return counts_; }
  // By expert, how many choices of all runs named it, dropped ones included.
  const std::vector<int64_t>& counts_of_all() const { return counts_of_all_; }
  // By (rank, expert, leaf), how many rows the ranks of the run have dispatched.
  const std::vector<int64_t>& counts_of_run_ranks() const { return counts_of_run_ranks_; }

  // i32 [dispatched]: the row that each dispatched row comes from; -1 where it is not in use.
  const Tensor& sources() const { return sources_; }
  // i32 [rows, k]: where each choice was dispatched to; -1: it was dropped.
  const Tensor& places() const { return places_; }

 private:
  std::vector<int64_t> counts_, counts_of_all_, counts_of_run_ranks_;
  Tensor sources_, places_;
};

// The rows that some of the experts get from several ranks, of which each has dispatched its own.
// They arrive by (rank, expert, leaf), and are put into the order (expert, rank, leaf): each rank's
// leaves are leaves here.
class ReceivedRows : public ExpertRanges {
 public:
  // `counts` [ranks * experts * leaves]: how many rows have come, by (rank, expert, leaf), with as
  // many leaves of each rank. `rows_of_rank`: how many have come from each rank, those behind the
  // counts not in use; none: as many as are counted.
  ReceivedRows(Kernels& kernels, int64_t ranks, int64_t experts, int64_t leaves,
               const std::vector<int64_t>& counts,
               std::optional<int64_t> rows_of_rank = std::nullopt);

  // Rows of a rank among those that arrive.
  const Range& From(int rank) const { return from_[rank]; }
  // i32 [dispatched]: the row that each dispatched row arrives as, and the inverse.
  const Tensor& arrivals() const { return arrivals_; }
  const Tensor& places() const { return places_; }

 private:
  std::vector<Range> from_;
  Tensor arrivals_, places_;
};

struct RouteOptions {
  Routing routing = {};
  // Added to scores for the choice alone: f32 [experts]; undefined: nothing is.
  Tensor bias = {};
  // Choices that an expert takes: this times what each would get if all got the same, rounded up.
  // 0: all of them.
  double capacity_factor = 0;
  // What the gradient of the auxiliary loss is multiplied by: its coefficient, times the micro-
  // batch's weight in the step's loss. With f the fraction of the choices that name an expert and p
  // its mean normalised score, the loss is experts * sum(f * p), which is 1 where the choices are
  // even (Fedus et al., "Switch Transformers", 2022).
  float auxiliary = 0;
  // The ranks that have the rows of the micro-batch, each a run of them, where there is a capacity
  // or an auxiliary loss; and those that divide the run which the logits are of.
  RowRanks ranks = {}, run_ranks = {};
  RoutingNotes* notes = nullptr;  // see ExpertRows
};

struct RoutedRows {
  Variable weights;  // f32 [rows, k]
  std::shared_ptr<const ExpertRows> rows;
};
// logits [..., experts].
RoutedRows Route(Tape& tape, const Variable& logits, const RouteOptions& options);

using SharedRows = std::shared_ptr<const ExpertRows>;

// x [..., width] to [dispatched, width]; zeros in rows that are not in use.
Variable Dispatch(Tape& tape, const Variable& x, const SharedRows& rows);

// Arrived rows x [..., width] in the order (expert, rank, leaf), and rows in this order as they
// have arrived: [dispatched, width].
using SharedReceivedRows = std::shared_ptr<const ReceivedRows>;
Variable OrderArrivals(Tape& tape, const Variable& x, const SharedReceivedRows& rows);
Variable BackToArrivals(Tape& tape, const Variable& x, const SharedReceivedRows& rows);

// x w(e)^T for the rows of each expert e: x [dispatched, in], w [experts * out, in], result
// [dispatched, out]. `outputs`: the leaves of the sum over an expert's output features, the input's
// gradient. Empty: not cut.
Variable ExpertLinear(Tape& tape, const Variable& x, Leaf& w, const SharedRanges& rows,
                      const FeatureLeaves& outputs = {});

// SwiGlu(pre) w(e) for the rows of each expert e: pre [dispatched, 2 * hidden], w [experts *
// hidden, out]: one expert's rows are its hidden features. Keeps `pre` alone for backward.
// `inputs`: the leaves of the sum over an expert's hidden features. Empty: not cut.
Variable ExpertSwiGluLinear(Tape& tape, const Variable& pre, Leaf& w, const SharedRanges& rows,
                            const FeatureLeaves& inputs = {});

// The dispatched rows x [dispatched, width] of each row, times the weights of its choices, added in
// the order of the choices, + residual [..., width], whose shape the result has.
Variable Combine(Tape& tape, const Variable& x, const RoutedRows& routed, const Variable& residual);

}  // namespace lockstep
