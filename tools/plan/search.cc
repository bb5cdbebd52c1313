#include "tools/plan/search.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <exception>
#include <limits>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "core/base/program.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

// Runs whose options are varied.
constexpr size_t kVaried = 3;

// Plans runs on all cores.
class Workers {
 public:
  Workers(const Planner& planner, const PlanProgress& progress)
      : planner_(planner), progress_(progress) {}

  // Calls work(i) for all i below `count`. The work plans with Plan, and has told Expect how much.
  void ForAll(size_t count, const std::function<void(size_t)>& work) {
    std::atomic<size_t> next = 0;
    std::mutex failing;
    absl::Status failure;  // the first
    const auto take = [&] {
      try {
        for (size_t i = next++; i < count; i = next++) work(i);
      } catch (const std::exception&) {
        next = count;
        const std::lock_guard lock(failing);
        failure.Update(StatusOfException());
      }
    };
    {
      std::vector<std::jthread> threads(std::max(1u, std::thread::hardware_concurrency()) - 1);
      for (std::jthread& thread : threads) thread = std::jthread(take);
      take();
    }
    ThrowIfError(failure);
  }
  void PlanAll(const std::vector<Candidate>& candidates) {
    Expect(static_cast<int64_t>(candidates.size()));
    ForAll(candidates.size(), [&](size_t i) { Plan(candidates[i]); });
  }

  void Expect(int64_t runs) {
    const std::lock_guard lock(mutex_);
    known_ += runs;
  }
  // The run, which is kept.
  Forecast Plan(const Candidate& candidate) {
    Forecast run = planner_.Plan(candidate);
    const std::lock_guard lock(mutex_);
    names_.insert(candidate.ToString());
    runs_.push_back(run);
    known_ = std::max(known_, static_cast<int64_t>(runs_.size()));
    progress_(static_cast<int64_t>(runs_.size()), known_);
    return run;
  }

  bool HasPlanned(const Candidate& candidate) const {
    return names_.contains(candidate.ToString());
  }
  std::vector<Forecast>& runs() { return runs_; }

 private:
  const Planner& planner_;
  const PlanProgress& progress_;
  std::mutex mutex_;
  std::vector<Forecast> runs_;
  std::set<std::string> names_;
  int64_t known_ = 0;
};

// Plans the candidate and, if it needs too much memory, the first that fits of those that need
// less. The one that needs least comes first of these: if it does not fit, none does. Returns the
// seconds of the one that fits, or infinity.
double PlanUntilOneFits(const Candidate& candidate, const CandidateLimits& limits,
                        Workers& workers) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  Forecast run = workers.Plan(candidate);
  if (!run.refused.ok()) return kNone;
  if (run.fits) return run.seconds;
  const std::vector<Candidate> smaller = SmallerCandidates(candidate, limits);
  if (smaller.empty()) return kNone;
  const Forecast smallest = workers.Plan(smaller.back());
  if (!smallest.fits) return kNone;
  for (size_t i = 0; i + 1 < smaller.size(); ++i) {
    run = workers.Plan(smaller[i]);
    if (run.fits) return run.seconds;
  }
  return smallest.seconds;
}

// Plans a mesh with growing micro-batches. They need growing memory. Larger products make them
// faster at first, and longer bubbles slower from some size on: behind the first that is slower
// than the one before come no better ones.
void PlanMesh(const std::vector<Candidate>& micro_batches, const CandidateLimits& limits,
              Workers& workers) {
  double before = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : micro_batches) {
    const double seconds = PlanUntilOneFits(candidate, limits, workers);
    if (seconds >= before || std::isinf(seconds)) return;
    before = seconds;
  }
}

}  // namespace

bool IsBetter(const Forecast& a, const Forecast& b) {
  const auto rank = [](const Forecast& run) {
    return std::make_tuple(!run.refused.ok(), !run.fits, run.seconds);
  };
  return rank(a) < rank(b);
}

std::vector<Forecast> PlanCandidates(const Planner& planner,
                                     const std::vector<Candidate>& candidates,
                                     const PlanProgress& progress) {
  Workers workers(planner, progress);
  workers.PlanAll(candidates);
  std::ranges::sort(workers.runs(), IsBetter);
  return std::move(workers.runs());
}

std::vector<Forecast> Search(const Planner& planner, const CandidateLimits& limits,
                             const PlanProgress& progress) {
  Workers workers(planner, progress);
  std::vector<std::vector<Candidate>> meshes;
  for (const Candidate& candidate : FirstCandidates(limits)) {
    if (meshes.empty() || meshes.back().front().mesh != candidate.mesh) meshes.emplace_back();
    meshes.back().push_back(candidate);
  }
  workers.Expect(static_cast<int64_t>(meshes.size()));
  workers.ForAll(meshes.size(), [&](size_t i) { PlanMesh(meshes[i], limits, workers); });
  std::vector<Forecast>& runs = workers.runs();
  std::ranges::sort(runs, IsBetter);
  // First several runs are varied, then the best, until none of its variants is better.
  for (size_t varied = kVaried;; varied = 1) {
    std::vector<Candidate> variants;
    std::set<std::string> taken;
    for (size_t i = 0; i < std::min(runs.size(), varied) && runs[i].fits; ++i) {
      for (const Candidate& variant : Variants(runs[i].candidate, limits)) {
        if (!workers.HasPlanned(variant) && taken.insert(variant.ToString()).second) {
          variants.push_back(variant);
        }
      }
    }
    if (variants.empty()) break;
    workers.PlanAll(variants);
    std::ranges::sort(runs, IsBetter);
  }
  return std::move(runs);
}

}  // namespace lockstep
