// Whether a strategy still trains as it should: its first steps are run and held to single's and to
// the curve that is kept.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/experiment/run_record.h"

namespace lockstep {

struct StrategyCheckOptions {
  std::string candidate = {};  // program that runs the strategy, its configuration included
  int64_t steps = 0;
  // "cuda": all programs run on the first GPU, which their ranks share: sums over ranks have rank
  // order there.
  std::string device = "cpu";

  // Repeat lane: the candidate runs once more and must have the same bits, on whatever device. On
  // the CPU the exact lane shows as much, since it holds another program to the same bits.
  bool repeat = false;

  // Exact lane, unless empty: the program that runs `single`, whose losses and final parameters are
  // the same to the bit (contract 3 of the design).
  std::string reference = {};

  // Golden lane, unless empty: the file with the kept curve; how many of the steps are held to it,
  // and how far from it, relatively, is still the same.
  std::string golden = {};
  int64_t golden_steps = 0;
  double golden_tolerance = 0;

  std::string scratch = {};  // directory for the runs
};

// How one lane went. `status` says what is wrong; `summary` is a line for a lane that passed.
struct LaneResult {
  std::string lane;  // "repeat", "exact", "golden"
  absl::Status status;
  std::string summary = {};
  // Where a lane failed: the first step outside; the last step, where parameters alone differ.
  std::optional<int64_t> failed_step = {};
};

// Runs the programs, one thread a rank, without validating, and compares. An error where a program
// fails, with its own message.
absl::StatusOr<std::vector<LaneResult>> CheckStrategy(const StrategyCheckOptions& options);

// Runs a program as CheckStrategy does, into the directory `out`. `assignments`: further
// "key=value", as --set takes them.
absl::StatusOr<RunRecord> RunForCheck(const StrategyCheckOptions& options,
                                      const std::string& program, const std::string& out,
                                      const std::vector<std::string>& assignments = {});

}  // namespace lockstep
