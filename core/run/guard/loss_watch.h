#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "core/comm/communicator.h"
#include "core/config/settings.h"
#include "core/report/results.h"

namespace lockstep {

// Whether the losses of a run are such that it may go on and save what it has trained: finite, as
// are the gradients, and none more than guard.loss_jump times the mean of the losses before it, of
// which the last ones count. The first few losses of a run are compared with none.
class LossWatch {
 public:
  // The settings outlive it. `checkpoints`: the folder of the run's.
  LossWatch(const Settings& settings, std::string checkpoints)
      : settings_(settings), checkpoints_(std::move(checkpoints)) {}

  // Takes the losses of the first `steps` steps from metrics.jsonl, which earlier attempts have
  // written; no file: there were none. Called by all ranks of a run that goes on. Rank 0 reads, and
  // all return its error.
  absl::Status Resume(const std::string& metrics, int64_t steps, Communicator& ranks);

  // Takes the result of step `step`, counted from 0, the same on all ranks. OutOfRange says why the
  // run should stop, and how a user can repeat the step. A step that was skipped because gradients
  // overflowed is passed over if its loss is finite; another loss is judged, as no lower loss scale
  // mends it.
  absl::Status Take(int64_t step, const StepResult& result);

  // Whether loss and gradients are finite.
  static bool IsFinite(const StepResult& result);

  // The mean of the losses that the next one is compared with; 0 while there are too few.
  double mean() const;

  // Called by all ranks: those of rank 0 become everybody's, as ranks that were idle have none.
  absl::Status Share(Communicator& ranks);

 private:
  static constexpr size_t kLeast = 4, kMost = 16;

  // Whether a finite loss jumps; if not, it joins the others.
  bool Jumps(double loss);
  void Add(double loss);

  std::string HowToRepeat(int64_t step) const;

  const Settings& settings_;
  const std::string checkpoints_;
  std::deque<double> losses_;  // the last ones, oldest first
};

}  // namespace lockstep
