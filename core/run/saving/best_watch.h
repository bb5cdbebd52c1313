#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "core/comm/communicator.h"
#include "core/config/best_settings.h"

namespace lockstep {

// Judges the validation losses of a run: whether one is the lowest of those whose checkpoints can
// be kept, and whether the run has waited long enough for a lower one. A loss that is infinite or
// NaN is never the lowest.
class BestWatch {
 public:
  explicit BestWatch(const BestSettings& settings) : settings_(settings) {}

  // What earlier attempts have left behind the first `steps` steps of a run that goes on there.
  struct Earlier {
    std::string metrics;  // metrics.jsonl, with their validations; no file: there were none
    std::string best_folder = {};  // of the best checkpoint; empty: there is none
    int64_t steps = 0;
  };
  // Takes their validations, in the place of what this object has taken before. A run of 250 steps
  // that validates each 100 does so after its last step, too; where it goes on with more steps,
  // that loss does not count as waiting. The best loss is that of the checkpoint which is kept.
  // Where there is none, as it was of a step that is trained again, the next finite loss is the
  // best.
  absl::Status Read(const Earlier& earlier);
  // Read, called by all ranks of a run that goes on. Rank 0 reads, and all return its error.
  absl::Status Resume(const Earlier& earlier, Communicator& ranks);

  // Called by all ranks: what rank 0 knows becomes everybody's, as ranks that were idle know
  // nothing.
  absl::Status Share(Communicator& ranks);

  // Takes a loss, the same on all ranks. Returns whether its checkpoint is the best so far.
  bool Take(double loss);

  // Whether a run of this patience ends here.
  bool ends_run() const { return settings_.patience > 0 && without_gain_ >= settings_.patience; }

  bool keeps_best() const { return settings_.keep; }

 private:
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  void Await(double loss);
  bool IsBest(double loss);

  const BestSettings settings_;
  double lowest_ = kNone;
  int64_t without_gain_ = 0;  // validations since the lowest
  double best_ = kNone;       // the loss behind the checkpoint that is kept
};

}  // namespace lockstep
