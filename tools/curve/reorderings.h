// Legitimate reorderings of a workload's sums: runs that differ from it by rounding alone.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/data/dataset.h"
#include "core/run/leg/training_run.h"

namespace lockstep {

// One of them.
struct Reordering {
  std::vector<std::string> assignments = {};  // for --set
  // Key of another order of the samples within each micro-batch; none: the workload's own order.
  std::optional<uint64_t> sample_order = {};

  // "cut.shards=2 cut.micro_batches=4, samples in another order"
  std::string ToString() const;
};

// All that a workload admits. Each choice keeps what is computed and changes the order of additions
// or a point of rounding:
//
//   cut.shards, cut.micro_batches  that divide the batch. With batch statistics, dropout, or
//   experts
//                                  that count the choices of a micro-batch, only those with the
//                                  workload's own micro-batches.
//   cut.tokens                     that cut the sequences of a transformer evenly, without dropout
//   cut.features                   that divide the model's split layers
//   order of samples               in a micro-batch, without dropout
//   precision.reduce               fp32 or the compute dtype, where that has 16 bits
//
// Dropout masks belong to a micro-batch's number and to the place of a row in memory. Experts that
// count choices take the tokens of a micro-batch in the order of memory, so that the
// order of samples and cut.tokens stay as they are there.
class Reorderings {
 public:
  // The reorderings of a run that has been checked (CheckRun). Errors are those of making its
  // model.
  static absl::StatusOr<Reorderings> Of(const TrainingRun& run);

  // Draws each choice with equal probability, and independently of other numbers. The same seed and
  // number give the same reordering.
  Reordering Draw(uint64_t seed, uint64_t number) const;

  // How many there are, orders of samples apart.
  int64_t count() const;
  bool reorders_samples() const { return reorders_samples_; }

 private:
  // Alternatives of one choice, each some assignments.
  using Choice = std::vector<std::vector<std::string>>;

  std::vector<Choice> choices_;
  bool reorders_samples_ = false;
};

// The data set with the samples of each micro-batch of training in another order, which follows
// from the key and the micro-batch's first sample.
std::shared_ptr<const Dataset> ReorderSamples(std::shared_ptr<const Dataset> dataset, uint64_t key);

}  // namespace lockstep
