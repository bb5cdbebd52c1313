#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/config/command_line.h"
#include "core/run/leg/training_run.h"
#include "foresight/cluster.h"
#include "foresight/cluster_comm_time.h"
#include "foresight/dialect.h"
#include "foresight/step_time.h"
#include "tools/plan/candidates.h"

namespace lockstep {

// Bytes of a rank: those of each class, and all of them together. The classes need not have their
// peaks at the same time, so `total` may be less than their sum.
struct RankMemory {
  std::vector<std::pair<std::string, double>> classes = {};
  double total = 0;
};

// What one candidate costs.
struct Forecast {
  Candidate candidate;
  absl::Status refused;         // not OK: the run is impossible, and the other members are empty
  double seconds = 0;           // of a step
  std::string unit = "tokens";  // of the workload's data, or "samples"
  double units_per_second = 0;  // of all ranks together
  double flops = 0;             // model FLOPs of a step: forward once, backward twice
  double mfu = 0;               // model FLOPs a second over the peak of all devices
  int fullest = 0;              // the rank along pp that needs most memory
  RankMemory memory;            // its peaks
  bool fits = false;
  StepEstimate estimate;  // with timelines in an Explanation alone
};

// Seconds of a step if one resource were twice as good.
struct FasterResource {
  std::string name;
  double seconds = 0;
};

// The bytes of a rank from `begin` on, by the classes of `classes`.
struct MemoryOverTime {
  std::vector<std::string> classes = {};
  struct Sample {
    double begin = 0;  // seconds from the beginning of the step
    std::vector<double> bytes = {};
  };
  std::vector<Sample> samples = {};
};

// A forecast and its reasons.
struct Explanation {
  Forecast forecast;                        // with timelines
  std::vector<FasterResource> faster = {};  // the greatest gain first
  MemoryOverTime memory = {};               // of the fullest rank; empty for other frameworks
};

// Plans one workload on one cluster.
class Planner {
 public:
  struct Options {
    // Configuration files and assignments. A candidate's keys override the files. Options that are
    // assigned are fixed for all candidates.
    CommandLine workload;
    ModelFactory make_model;
    Cluster cluster;
    Dialect dialect;
    double memory = 0;         // bytes of a device that a run may use; 0: all
    int64_t batch_factor = 1;  // the batch of a step is the workload's times this
  };
  // InvalidArgument if the workload itself is wrong, or if a mesh or a cut is assigned.
  static absl::StatusOr<Planner> Create(Options options);

  // What model and cluster allow on so many ranks. InvalidArgument if the cluster has fewer
  // devices.
  absl::StatusOr<CandidateLimits> Limits(int64_t ranks) const;

  // Records the candidate's step and estimates it. May be called by several threads.
  Forecast Plan(const Candidate& candidate) const;

  // The same with reasons. Returns the error of a candidate that is refused.
  absl::StatusOr<Explanation> Explain(const Candidate& candidate) const;

  // The candidate's whole configuration as TOML, as a strategy's program takes it.
  absl::StatusOr<std::string> ConfigurationOf(const Candidate& candidate) const;

  const Cluster& cluster() const { return options_.cluster; }
  double room() const {  // bytes of a device that a run may use
    return options_.memory > 0 ? options_.memory : options_.cluster.device.memory;
  }

 private:
  explicit Planner(Options options);

  // InvalidArgument for what the dialect's framework does not have.
  absl::Status CheckOptions(const Candidate& candidate) const;
  absl::StatusOr<StepTime> Record(const Candidate& candidate) const;
  absl::StatusOr<Forecast> Estimate(const Candidate& candidate, const StepTime& time,
                                    Timeline timeline) const;
  RankMemory MemoryAt(const Candidate& candidate, const StepTime& time,
                      const std::vector<KernelCost>& costs, int pp) const;

  Options options_;
  FixedOptions fixed_;
  StrategyDefinition strategy_;
  std::shared_ptr<const ClusterCommTime> network_;
  int64_t batch_ = 1;  // samples of a step
  std::string unit_;
  double units_per_sample_ = 1;
  double forward_macs_ = 0;  // multiply-adds of one sample
};

}  // namespace lockstep
