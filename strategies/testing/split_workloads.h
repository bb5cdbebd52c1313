#pragma once

#include <string>
#include <vector>

#include "strategies/testing/run_strategy.h"

namespace lockstep {

// What tensor parallelism is tested with, in whatever strategy carries it.
enum class SplitKind { kGpt, kGptSplitSequence, kResNet, kUNet };
std::string Name(SplitKind kind);

struct SplitWorkload {
  std::string config;
  Assignments assignments;  // for any strategy
  Assignments options;      // of those that have the axis tp
};

// The transformer has twelve heads and widths that 2, 3, 4 and 6 ranks divide, a vocabulary of 16,
// which 3 do not, and dropout. Where ranks divide the sequence, its context is 24 tokens.
SplitWorkload WorkloadOf(SplitKind kind);

// A cut into so many feature leaves and, where ranks divide the sequence, as many token leaves.
Assignments LeavesOf(SplitKind kind, int leaves);

// Trains as RunStrategy does.
std::vector<RankReport> Train(const StrategyDefinition& strategy, const SplitWorkload& workload,
                              const Assignments& assignments);

// The norm of the gradient at each step of the last run.
std::vector<double> GradientNorms();

}  // namespace lockstep
