#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "core/comm/communicator.h"
#include "core/config/best_settings.h"

namespace lockstep {

// Judges the validation losses of a run: which is the lowest so far, and whether the run has waited
// long enough for a lower one. A loss that is infinite or NaN is never the lowest.
class BestWatch {
 public:
  explicit BestWatch(const BestSettings& settings) : settings_(settings) {}

  // Takes the validations of the first `steps` steps, which earlier attempts have written to the
  // file `metrics` (metrics.jsonl). Called by all ranks of a run that goes on; rank 0 reads, and an
  // error of reading is that of all. No file: there were none.
  absl::Status Resume(const std::string& metrics, int64_t steps, Communicator& ranks);

  // Called by all ranks: what rank 0 knows becomes everybody's, as ranks that were idle know
  // nothing.
  absl::Status Share(Communicator& ranks);

  // Takes a loss, the same on all ranks. Returns whether it is the lowest so far.
  bool Take(double loss);

  // Whether a run of this patience ends here.
  bool ends_run() const { return settings_.patience > 0 && without_gain_ >= settings_.patience; }

  bool keeps_best() const { return settings_.keep; }

 private:
  const BestSettings settings_;
  double lowest_ = std::numeric_limits<double>::infinity();
  int64_t without_gain_ = 0;  // validations since the lowest
};

}  // namespace lockstep
