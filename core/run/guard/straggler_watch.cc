#include "core/run/guard/straggler_watch.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "core/base/status.h"
#include "core/comm/host_numbers.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

double Total(const RankWork& work) {
  return static_cast<double>(std::accumulate(work.begin(), work.end(), int64_t{0}));
}

// The lower one of the two in the middle of an even number of values.
double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::vector<Straggler> FindStragglers(absl::Span<const RankWork> work, int stages, double factor,
                                      int64_t steps, int64_t last_step) {
  const int ranks = static_cast<int>(work.size()), of_stage = ranks / stages;
  CHECK_EQ(of_stage * stages, ranks);
  std::vector<Straggler> stragglers;
  if (of_stage == 1) return stragglers;
  for (int rank = 0; rank < ranks; ++rank) {
    const int first = rank / of_stage * of_stage;
    // The median of what `value` says of the other ranks of the stage.
    const auto of_others = [&](const auto& value) {
      std::vector<double> values;
      for (int other = first; other < first + of_stage; ++other) {
        if (other != rank) values.push_back(value(work[other]));
      }
      return Median(std::move(values));
    };
    const double own = Total(work[rank]), others = of_others(Total);
    if (own <= factor * others) continue;
    Straggler straggler = {.step = last_step,
                           .rank = rank,
                           .factor = own / std::max(others, 1.0),
                           .seconds = (own - others) * 1e-9 / static_cast<double>(steps)};
    double most = 0;
    for (int phase = 0; phase < kPhases; ++phase) {
      const auto in_phase = [phase](const RankWork& of) { return static_cast<double>(of[phase]); };
      const double lost = in_phase(work[rank]) - of_others(in_phase);
      if (lost <= most) continue;
      most = lost;
      straggler.part = static_cast<Phase>(phase);
    }
    stragglers.push_back(straggler);
  }
  return stragglers;
}

absl::StatusOr<std::vector<Straggler>> StragglerWatch::Take(int64_t step, const StepTimes& times,
                                                            Communicator& ranks, int stages) {
  if (guard_.straggler_factor == 0) return std::vector<Straggler>();
  for (int phase = 0; phase < kPhases; ++phase) {
    // A stage that waits for another has nothing to do.
    if (static_cast<Phase>(phase) != Phase::kBubble) work_[phase] += times.phases[phase];
  }
  if (++steps_ < guard_.straggler_steps) return std::vector<Straggler>();
  std::vector<RankWork> all(static_cast<size_t>(ranks.size()));
  LS_RETURN_IF_ERROR(GatherNumbers(
      ranks, work_, absl::MakeSpan(all[0].data(), all.size() * kPhases), "stragglers"));
  std::vector<Straggler> stragglers =
      FindStragglers(all, stages, guard_.straggler_factor, steps_, step);
  BeginWindow();
  for (const Straggler& straggler : stragglers) {
    SlowRank& slow = slow_ranks_[straggler.rank];
    slow.windows += 1;
    if (straggler.factor > slow.worst.factor) slow.worst = straggler;
  }
  return stragglers;
}

void StragglerWatch::BeginWindow() {
  work_ = {};
  steps_ = 0;
}

std::vector<SlowRank> StragglerWatch::slow_ranks() const {
  std::vector<SlowRank> ranks;
  for (const auto& [rank, slow] : slow_ranks_) ranks.push_back(slow);
  return ranks;
}

}  // namespace lockstep
