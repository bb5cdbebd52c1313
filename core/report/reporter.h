#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/checkpoint_costs.h"
#include "core/report/event_file.h"
#include "core/report/metrics.h"
#include "core/report/progress.h"
#include "core/report/rank_report.h"
#include "core/report/results.h"
#include "core/report/row_checksums.h"
#include "core/report/row_file.h"
#include "core/report/run_description.h"
#include "core/report/step_timer.h"
#include "core/tensor/memory.h"

namespace lockstep {

// What rank 0 keeps and shows of a run while it goes on.
class Reporter {
 public:
  // Whether a run can go on with `first_step` after what its files hold: a row of losses.csv for
  // each step before it, and rows that can be read. Changes nothing.
  static absl::Status Check(const RunDescription& run, int64_t first_step);

  // Opens the files; those of a resumed run from `first_step` on, after copying what will be
  // overwritten (KeepEarlierAttempt). `from`: the checkpoint that the run goes on from, for the
  // banner. The run outlives the reporter.
  static absl::StatusOr<std::unique_ptr<Reporter>> Open(const RunDescription& run,
                                                        int64_t first_step,
                                                        const std::string& from);

  // What the model makes of the data before the first step.
  void Start(const ValidationResult& result);
  absl::Status Step(int64_t step, const StepResult& result, const StepTimes& times,
                    const MemoryBooks& memory);
  absl::Status Validation(int64_t step, const ValidationResult& result);
  absl::Status Change(const MeshChange& change);
  absl::Status Slow(const Straggler& straggler);
  // A checkpoint with `steps` behind it got its name after step `step`.
  absl::Status Checkpoint(int64_t step, int64_t steps, const CheckpointCosts& costs);
  // The state after `steps` steps was copied into the machine's memory, all ranks together.
  absl::Status Copy(int64_t steps, double seconds, int64_t bytes);
  // Appends the hashes of a step to hashes.csv. Requires a run with hashes (Settings::hash_every).
  absl::Status Hashes(const StepHashes& hashes) { return files_.hashes->Append(hashes.ToRows()); }
  // Forces what was reported to the disk, for a checkpoint with `steps` behind it, and adds the
  // checksums of its rows (RowChecksums). May be called beside the other members, and itself.
  absl::Status Sync(int64_t steps);
  // The rows alone, without checksums of them.
  absl::Status SyncRows();
  // A message for whoever watches: nothing where there is no terminal.
  void Note(const std::string& message);

 private:
  // What grows while the run goes on.
  struct Files {
    RowFile losses, steps, metrics;
    std::optional<RowFile> hashes = std::nullopt;
    std::optional<EventFile> events = std::nullopt;
  };

  Reporter(const RunDescription& run, Files files, RowChecksums checksums);

  // Hands scalars to TensorBoard, if the run wants that.
  absl::Status Show(int64_t step, const EventFile::Scalars& scalars);

  const RunDescription& run_;
  Files files_;
  std::mutex checksums_mutex_;
  RowChecksums checksums_;
  ProgressLine progress_;
};

}  // namespace lockstep
