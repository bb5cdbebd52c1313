#include "tools/plan/search.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/types/span.h"
#include "core/base/program.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

// Runs whose options are varied.
constexpr size_t kVaried = 3;

// All cores plan; under AddressSanitizer one does. Simulations of the network fork
// (foresight/flow_simulation.h), and the child inherits the locks of GCC 12's ASan runtime: where
// another thread held one, the child's next allocation waits for ever. glibc and jemalloc
// release theirs.
size_t PlanningThreads() {
#ifdef __SANITIZE_ADDRESS__
  return 1;
#else
  return std::max(1u, std::thread::hardware_concurrency());
#endif
}

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
      std::vector<std::jthread> threads(PlanningThreads() - 1);
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

// A candidate, then those that need less memory, in groups of one mesh and in these of one shard.
// The last of a shard's group needs least of it, and the last mesh needs least of all. Which shard
// needs least of a mesh, the first or the last, depends on the ranks: few divide little, and
// parameters that they gather come on top.
std::vector<Candidate> OptionsOf(const Candidate& candidate, const CandidateLimits& limits) {
  std::vector<Candidate> options = SmallerCandidates(candidate, limits);
  options.insert(options.begin(), candidate);
  return options;
}

// One of several options, and the seconds of its step.
struct Fitting {
  size_t option = 0;
  double seconds = 0;
};

// Plans until it has found the first of the options that fits; nullopt: none does. A group whose
// last one does not fit is passed over.
std::optional<Fitting> PlanUntilOneFits(absl::Span<const Candidate> options, Workers& workers) {
  std::vector<std::optional<Forecast>> planned(options.size());
  const auto plan = [&](size_t i) -> const Forecast& {
    if (!planned[i]) planned[i] = workers.Plan(options[i]);
    return *planned[i];
  };
  const auto last_of_group = [&](size_t i, const auto& is_like) {
    while (i + 1 < options.size() && is_like(options[i], options[i + 1])) ++i;
    return i;
  };
  const auto of_one_mesh = [](const Candidate& a, const Candidate& b) { return a.mesh == b.mesh; };
  const auto of_one_shard = [](const Candidate& a, const Candidate& b) {
    return a.mesh == b.mesh && a.shard == b.shard;
  };
  if (!plan(0).refused.ok()) return std::nullopt;
  const size_t last = options.size() - 1;
  size_t last_mesh = last;  // where its group begins
  while (last_mesh > 0 && of_one_mesh(options[last_mesh - 1], options[last])) --last_mesh;
  if (!plan(0).fits && !plan(last).fits && !plan(last_of_group(last_mesh, of_one_shard)).fits) {
    return std::nullopt;
  }
  for (size_t i = 0; i < options.size();) {
    if (plan(i).fits) return Fitting{.option = i, .seconds = plan(i).seconds};
    ++i;
    while (i < options.size() && !plan(last_of_group(i, of_one_shard)).fits) {
      const bool has_other = plan(last_of_group(i, of_one_mesh)).fits;
      i = (has_other ? last_of_group(i, of_one_shard) : last_of_group(i, of_one_mesh)) + 1;
    }
  }
  return std::nullopt;
}

// Plans a mesh with growing micro-batches. They need growing memory: what did not fit for one size
// does not for the next. Larger products make them faster at first, and longer bubbles slower from
// some size on: behind the first that is slower than the one before come no better ones.
void PlanMesh(const std::vector<Candidate>& micro_batches, const CandidateLimits& limits,
              Workers& workers) {
  std::optional<Candidate> fitting;
  double before = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : micro_batches) {
    const std::vector<Candidate> options = OptionsOf(candidate, limits);
    size_t first = 0;
    if (fitting) {
      fitting->micro_batch = candidate.micro_batch;
      first = std::find(options.begin(), options.end(), *fitting) - options.begin();
      if (first == options.size()) first = 0;  // does not go with these micro-batches
    }
    const std::optional<Fitting> found =
        PlanUntilOneFits(absl::MakeSpan(options).subspan(first), workers);
    if (!found || found->seconds >= before) return;
    before = found->seconds;
    fitting = options[first + found->option];
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
