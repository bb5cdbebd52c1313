#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/plan/planner.h"

namespace lockstep {

// Is called for each run that has been planned: how many are done, and how many are known to come.
using PlanProgress = std::function<void(int64_t done, int64_t known)>;

// The fastest runs that fit come first, then those that do not fit, then those that are refused.
bool IsBetter(const Forecast& a, const Forecast& b);

// Plans all of the candidates on all cores of the machine, and sorts them by IsBetter.
std::vector<Forecast> PlanCandidates(const Planner& planner,
                                     const std::vector<Candidate>& candidates,
                                     const PlanProgress& progress);

// All runs worth considering, sorted by IsBetter. Plans every mesh with the options of
// FirstCandidates, with less memory where that does not fit; then the variants of the runs that
// came out best; then those of the best, until none of them is better. Uses all cores of the
// machine.
std::vector<Forecast> Search(const Planner& planner, const CandidateLimits& limits,
                             const PlanProgress& progress);

}  // namespace lockstep
