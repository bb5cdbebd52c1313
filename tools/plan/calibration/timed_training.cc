#include "tools/plan/calibration/timed_training.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <limits>
#include <memory>
#include <unordered_map>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/parallel.h"
#include "core/base/status.h"
#include "core/comm/launch.h"
#include "core/comm/mesh.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/run/leg/batches.h"
#include "core/run/leg/training_run.h"
#include "core/tensor/allocator.h"
#include "foresight/device_time.h"
#include "foresight/dialect.h"
#include "models/models.h"
#include "strategies/engine/preset.h"
#include "tools/experiment/paths.h"

namespace lockstep {
namespace {

constexpr int kWarmUpSteps = 2;  // compile primitives and fill the allocator
constexpr int kLeastSteps = 4;
constexpr int kNoEnd = std::numeric_limits<int>::max();
// Seconds that making tensors and walking the tape takes beside a kernel, at most.
constexpr double kMostBetween = 2e-6;
// Kernels that take a smaller share of a step are left out.
constexpr double kLeastShare = 0.002;

// The median; of an even number of values the lower one in the middle. A large model has time for
// two steps, and what disturbs one of them makes it slower.
double MedianOf(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Keeps the times of all calls.
class KernelTimer final : public KernelObserver {
 public:
  void OnKernel(KernelCall call) override {
    times_ = &by_call_.try_emplace(std::move(call)).first->second;
  }
  void OnKernelEnd(int64_t nanos) override { times_->push_back(static_cast<double>(nanos) * 1e-9); }

  using ByCall = std::unordered_map<KernelCall, std::vector<double>, absl::Hash<KernelCall>>;
  const ByCall& by_call() const { return by_call_; }

 private:
  ByCall by_call_;
  std::vector<double>* times_ = nullptr;  // of the present call
};

absl::StatusOr<TrainingRun> Prepare(const TrainingToTime& training) {
  LS_ASSIGN_OR_RETURN(const TemporaryDirectory folder, TemporaryDirectory::Create());
  CommandLine command_line;
  command_line.configs = {folder.path() + "/calibration.toml"};
  LS_RETURN_IF_ERROR(WriteFileAtomically(command_line.configs[0], "name = 'calibration'\n"));
  command_line.assignments = {"train.steps=1000000", absl::StrCat("run.threads=", training.threads),
                              absl::StrCat("mesh.tp=", training.together ? training.ranks : 1)};
  command_line.assignments.insert(command_line.assignments.end(), training.assignments.begin(),
                                  training.assignments.end());
  return CheckRun(command_line, EnginePreset("calibrate", {}), MakeModel);
}

// Rows of the kernels that were seen in `observed` steps; steps in which nobody looked took
// `step_seconds`.
std::vector<MeasuredKernel> RowsOf(const KernelTimer& timer, size_t observed, double step_seconds,
                                   const DialectContext& context, const Dialect& dialect,
                                   const TrainingToTime& training) {
  double in_kernels = 0, calls = 0;
  for (const auto& [call, times] : timer.by_call()) {
    const double of_step = static_cast<double>(times.size()) / static_cast<double>(observed);
    in_kernels += of_step * MedianOf(times);
    calls += of_step;
  }
  // What lies between kernels is a little for each, and the rest in proportion to their time.
  const double outside = std::max(0.0, step_seconds - in_kernels);
  const double between = std::min(kMostBetween, outside / calls);
  const double beside = 1 + (outside - between * calls) / in_kernels;
  std::vector<MeasuredKernel> rows;
  for (const auto& [call, times] : timer.by_call()) {
    const absl::StatusOr<KernelCost> cost = dialect.CostOf(call, context);
    const double seconds = MedianOf(times) * beside + between;
    const double share =
        seconds * static_cast<double>(times.size()) / static_cast<double>(observed) / step_seconds;
    if (!cost.ok() || WorkOf(*cost) <= 0 || share < kLeastShare) continue;
    MeasuredKernel row = {.kernel = call.kernel,
                          .dtype = call.tensors[0].dtype,
                          .ranks = training.ranks,
                          .threads = training.threads,
                          .extents = ExtentsOf(call),
                          .work = WorkOf(*cost),
                          .seconds = seconds};
    // Kernels that work element by element are one row for several shapes.
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const MeasuredKernel& other) {
      return other.kernel == row.kernel && other.dtype == row.dtype && other.extents == row.extents;
    });
    if (same == rows.end()) {
      rows.push_back(std::move(row));
    } else {
      same->seconds = std::min(same->seconds, row.seconds);
    }
  }
  return rows;
}

// Trains up to the step `last`, which the rank that measures sets.
absl::StatusOr<std::vector<MeasuredKernel>> TimeRank(const TrainingToTime& training,
                                                     const TrainingRun& run, RankHandle& handle,
                                                     double seconds, bool measures,
                                                     std::atomic<int>& last) {
  SetThreads(static_cast<int>(run.settings.threads));
  CpuAllocator allocator;
  CpuKernels kernels(allocator, run.settings.instructions);
  LS_ASSIGN_OR_RETURN(Mesh mesh, Mesh::Create(run.settings.mesh, handle.comm()));
  Trace trace(handle.rank(), TraceWindow{});
  StepTimer timer({});
  Rank rank(kernels, mesh, timer, trace);
  LS_ASSIGN_OR_RETURN(Model model, run.make_model(run.config, *run.dataset));
  const std::unique_ptr<Strategy> strategy = MakeStrategy(run, rank, std::move(model), {});
  PrefetchedBatches batches(run, rank, 0, run.settings.steps, strategy->micro_batches());
  KernelTimer kernel_timer;
  size_t observed = 0;
  std::vector<double> steps;
  const int64_t begin = NowNanos();
  const auto waited = [&] { return handle.ledger().Mark().All().exposed_nanos; };
  for (int step = 0; step <= last; ++step) {
    // Kernels are observed in every other step: the others say what lies between them.
    const bool observes = measures && step >= kWarmUpSteps && step % 2 == 0;
    kernels.Observe(observes ? &kernel_timer : nullptr);
    const int64_t step_begin = NowNanos(), waited_before = waited();
    strategy->TrainStep(step, batches);
    observed += observes;
    if (step >= kWarmUpSteps && !observes) {
      steps.push_back(SecondsSince(step_begin) -
                      1e-9 * static_cast<double>(waited() - waited_before));
    }
    if (measures && last == kNoEnd && step + 1 >= kWarmUpSteps + kLeastSteps &&
        SecondsSince(begin) > seconds) {
      // Ranks of the same world are in this step or the next one, which needs all of them.
      last = step + 1;
    }
  }
  if (!measures) return std::vector<MeasuredKernel>();
  kernels.Observe(nullptr);
  LS_ASSIGN_OR_RETURN(const Dialect dialect, Dialect::Lockstep());
  DialectContext context;
  context.token_leaves = static_cast<double>(run.settings.cut.tokens);
  return RowsOf(kernel_timer, observed, MedianOf(steps), context, dialect, training);
}

}  // namespace

absl::StatusOr<std::vector<MeasuredKernel>> TimeTraining(const TrainingToTime& training,
                                                         double seconds) {
  LS_ASSIGN_OR_RETURN(const TrainingRun run, Prepare(training));
  std::vector<MeasuredKernel> rows;
  std::atomic<int> last = kNoEnd;
  const int world = training.together ? training.ranks : 1;
  const auto train = [&](RankHandle& outer) -> absl::Status {
    const absl::Status status = RunRanks(world, {}, [&](RankHandle& handle) -> absl::Status {
      const bool measures = outer.rank() == 0 && handle.rank() == 0;
      LS_ASSIGN_OR_RETURN(auto own, TimeRank(training, run, handle, seconds, measures, last));
      if (measures) rows = std::move(own);
      return absl::OkStatus();
    });
    if (!status.ok()) last = -1;
    return status;
  };
  LS_RETURN_IF_ERROR(RunRanks(training.ranks / world, {}, train));
  return rows;
}

}  // namespace lockstep
