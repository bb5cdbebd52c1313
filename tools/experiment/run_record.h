#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/config/legs.h"
#include "core/report/metrics.h"
#include "core/report/restart_log.h"
#include "tools/timeline/step_trace.h"

namespace lockstep {

// What the theory says beside what was measured, in bytes.
struct RunCost {
  std::optional<double> predicted;
  double measured = 0;
};

// One rank of a run.
struct RunRank {
  double memory_peak = 0;                        // bytes
  std::map<std::string, double> memory_at_peak;  // by class; these add up to it
};

// A run as its directory tells it: losses.csv, config.toml, error.txt of one that failed, and, when
// it came to its end, summary.json, loss scales, the load of experts and changes of mesh in
// metrics.jsonl, the last step of trace.json, and restarts.jsonl of one that has lost ranks.
struct RunRecord {
  enum class State {
    kMissing,     // no run at all, or nothing that can be read
    kUnfinished,  // losses, but no summary of them
    kComplete,
  };

  State state = State::kMissing;
  std::string problem;  // unless complete: what is wrong, in a few words
  std::string error;    // what the program said when it failed there; empty: nothing

  std::string directory;
  Config config;
  std::string workload;  // empty where unknown
  std::string strategy;  // of a complete run; else the directory's last name
  std::vector<LossPoint> losses;
  int64_t steps = 0;  // that were asked for; of a run that ended early, those that it has
  // The legs of the run (train.legs) that begin before `steps`; empty if it has no other than one.
  std::vector<Leg> legs;

  // The rest is from the summary; of a complete run only. With legs, strategy, mesh, ranks, times,
  // memory and traffic are those of the last one.
  std::string mesh;  // "pp=1,dp=2,tp=1"
  int64_t ranks = 0;
  // How its sums are cut.
  int64_t shards = 0;
  int64_t micro_batches = 0;
  int64_t tokens = 0;
  int64_t features = 0;
  std::string parameter_hash;
  double loss = 0;             // of the last step
  double validation_loss = 0;  // NaN where it is not finite, as in JSON
  double validation_accuracy = 0;
  // The same before the first step, where the run asked for it.
  struct Start {
    double loss = 0, accuracy = 0;
  };
  std::optional<Start> validation_at_start;
  // Elements of all parameters, and of those that it trained; 0 where unknown.
  int64_t parameters = 0, trained_parameters = 0;
  int64_t checkpoint_bytes = 0;      // of the newest; 0: none is kept
  std::optional<double> loss_floor;  // that the data allows
  double step_seconds = 0;
  bool is_warm_up = false;                 // the times are of the first steps: it had no others
  double predicted_step_seconds = 0;       // 0: not predicted
  std::string unit;                        // "samples" or "tokens"
  double units_per_second = 0;             // of all ranks together
  std::map<std::string, double> time;      // seconds of a step by phase, mean over ranks
  double memory_peak = 0;                  // bytes, of the rank with most
  std::map<std::string, RunCost> memory;   // by class, peak of the rank with most
  std::map<std::string, RunCost> traffic;  // "operation label": sent by a rank in a step

  std::vector<RunRank> per_rank;

  // The last step that was traced, if any.
  std::optional<StepTrace> step_trace;

  // The loss scale of each step, and which steps were skipped; empty where losses are not scaled.
  std::vector<double> loss_scales;
  std::vector<int64_t> skipped_steps;

  // By router, the fractions of the last step's choices that named each expert; empty without
  // experts.
  struct LayerLoad {
    std::string router;
    std::vector<double> fractions = {};
  };
  std::vector<LayerLoad> expert_load;

  // Ranks that were lost, in order (restarts.jsonl).
  std::vector<Restart> restarts;

  // A rank that was slower than others with the same work in some windows of the run
  // (guard.straggler_factor). The rest is of the window in which the rank was slowest.
  struct SlowRank {
    int64_t rank = 0;
    int64_t windows = 0;
    std::string part = {};  // phase of the step in which the rank lost most
    double factor = 0;      // its time over the median of the others'
    double seconds = 0;     // what a step took longer than that median
    int64_t step = 0;       // the window's last, counted from 0
  };
  std::vector<SlowRank> slow_ranks;

  // A change of mesh between two legs, in any attempt.
  struct MeshChange {
    int64_t steps = 0;       // behind it
    std::string from, to;    // "ddp pp=1,dp=4,tp=1"
    double seconds = 0;      // from the end of one step to where the next could begin
    int64_t sent_bytes = 0;  // by all ranks together
  };
  std::vector<MeshChange> changes_of_mesh;

  bool complete() const { return state == State::kComplete; }
};

// Reads a run directory. Whatever is wrong with it is told in the record, also that rows of
// losses.csv or metrics.jsonl have changed (core/report/row_checksums.h).
RunRecord ReadRunRecord(const std::string& directory);

}  // namespace lockstep
