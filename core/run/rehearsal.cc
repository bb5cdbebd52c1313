#include "core/run/rehearsal.h"

#include <algorithm>
#include <iterator>  // std::inserter
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "core/base/parallel.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint_writer.h"
#include "core/comm/folded_communicator.h"
#include "core/comm/launch.h"
#include "core/comm/mesh.h"
#include "core/comm/quiet_communicator.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/run/guard/exchanged_ranks.h"
#include "core/run/leg/batches.h"
#include "core/run/leg/profile_blocks.h"
#include "core/run/leg/validation.h"
#include "core/run/record/routed_steps.h"
#include "core/run/record/step_recorder.h"
#include "core/run/strategy/model_weights.h"
#include "core/tensor/rehearsal_allocator.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

struct CalledKernels final : KernelObserver {
  std::set<std::string> names;

  void OnKernel(KernelCall call) override { names.insert(call.kernel); }
};

// A validation in which a rank has one batch.
TrainingRun WithShortValidation(TrainingRun run, const Mesh& mesh) {
  int64_t& batches = run.settings.validation.batches;
  const int64_t ranks = mesh.data().size();
  batches = batches == 0 ? ranks : std::min(batches, ranks);
  return run;
}

// The most steps of a kind that a rank repeats, at least `least`. All ranks go through as many.
int64_t StepsOf(const RehearsalOptions& options, RoutedStep::Kind kind, int64_t least) {
  for (const std::vector<RoutedStep>& of_rank : options.routed) {
    least = std::max(least, CountOf(of_rank, kind));
  }
  return least;
}

std::vector<RoutedStep> NotedOf(const RehearsalOptions& options, int rank) {
  return options.routed.empty() ? std::vector<RoutedStep>()
                                : options.routed.at(static_cast<size_t>(rank));
}

// The work of another rank, which the run's guard has each rank repeat beside its own.
class RehearsedExchange {
 public:
  // What it refers to outlives it. `world`: of the rank.
  RehearsedExchange(const TrainingRun& run, const RehearsalOptions& options, Rank& rank,
                    Strategy& strategy, const std::vector<BlockProfile>& profiles)
      : run_(run),
        options_(options),
        strategy_(strategy),
        profiles_(profiles),
        world_(rank.mesh.world()),
        tools_{.world = world_, .kernels = rank.kernels, .timer = rank.timer, .trace = rank.trace} {
  }

  // Whether step `step` of `steps` that are rehearsed is repeated: of a run in which not all are,
  // the last.
  bool IsDue(int64_t step, int64_t steps) const {
    return run_.settings.guard.exchanges_ranks(run_.settings.steps) &&
           (run_.settings.guard.every == 1 || step + 1 == steps);
  }

  // Before the step, and behind it.
  void Begin() {
    if (!ranks_) {
      auto made = ExchangedRanks::Make(run_, world_, tools_, profiles_, /*shift=*/1);
      ThrowIfError(made.status());
      ranks_.emplace(*std::move(made));
    }
    ThrowIfError(ranks_->Take(strategy_, world_));
  }
  void Repeat(int64_t step) {
    RankInLeg& there = ranks_->there();
    RepeatedSteps routing(NotedOf(options_, there.rank().rank));
    routing.Begin(RoutedStep::Kind::kTraining);
    there.rank().routing = &routing;
    PrefetchedBatches batches(run_, there.rank(), step, step + 1, there.strategy().micro_batches());
    there.strategy().TrainStep(step, batches);
    there.rank().routing = nullptr;
  }

 private:
  const TrainingRun& run_;
  const RehearsalOptions& options_;
  Strategy& strategy_;
  const std::vector<BlockProfile>& profiles_;
  Communicator& world_;
  const RankTools tools_;
  std::optional<ExchangedRanks> ranks_;
};

// The beginning of a run, and its end.
void GoThrough(const TrainingRun& run, const RehearsalOptions& options, Rank& rank,
               Strategy& strategy, const std::vector<BlockProfile>& profiles) {
  PrefetchedBatches batches(run, rank, 0, run.settings.steps, strategy.micro_batches());
  rank.allocator().ResetPeaks();
  const std::vector<RoutedStep> noted = NotedOf(options, rank.rank);
  RepeatedSteps repeated(noted);
  rank.routing = &repeated;
  const int64_t steps =
      StepsOf(options, RoutedStep::Kind::kTraining, std::min<int64_t>(2, run.settings.steps));
  RehearsedExchange exchange(run, options, rank, strategy, profiles);
  const auto train = [&] {
    for (int64_t step = 0; step < steps; ++step) {
      const bool is_repeated = exchange.IsDue(step, steps);
      if (is_repeated) exchange.Begin();
      repeated.Begin(RoutedStep::Kind::kTraining);
      strategy.TrainStep(step, batches);
      if (is_repeated) exchange.Repeat(step);
    }
  };
  const auto validate = [&] {
    for (int64_t i = StepsOf(options, RoutedStep::Kind::kEvaluation, 1); i > 0; --i) {
      Validate(run, rank, strategy);
    }
  };
  if (StepsOf(options, RoutedStep::Kind::kTraining, 0) == 0) {
    train();
    validate();
  } else {
    // Where no peak was that of an evaluation, even loads of one must not make one.
    validate();
    if (CountOf(noted, RoutedStep::Kind::kEvaluation) == 0) rank.allocator().ResetPeaks();
    train();
  }
  rank.routing = nullptr;
}

// The memory that copies of the state take throughout a run.
std::vector<StateTensor> CopyOfState(const TrainingRun& run, Rank& rank, Strategy& strategy) {
  if (!run.settings.copies_state() || run.device != DeviceType::kCpu) return {};
  return AllocateCopy(TrainedState(strategy.State()), rank.allocator());
}

// Makes a rank of the run, whose world is `host`, and has `go` use it, its strategy, and what it
// knows of the blocks. `observer` hears of kernels and calls, of which it may not want to know.
template <typename Go>
auto WithRehearsedRank(const TrainingRun& run, const RehearsalOptions& options, Communicator& host,
                       CpuKernels& kernels, CallObserver* observer, Go&& go)
    -> decltype(go(std::declval<Rank&>(), std::declval<Strategy&>(), std::vector<BlockProfile>())) {
  SetThreads(static_cast<int>(run.settings.threads));
  const bool on_cpu = run.device == DeviceType::kCpu;
  QuietCommunicator world(
      host, {.held_bytes = on_cpu ? options.held_bytes
                                  : run.devices->held_bytes(run.settings.nccl_reductions),
             .observer = observer});
  LS_ASSIGN_OR_RETURN(Mesh mesh, Mesh::Create(run.settings.mesh, world));
  Trace trace(host.rank(), TraceWindow{});
  StepTimer timer({});
  Rank rank(kernels, mesh, timer, trace);
  LS_ASSIGN_OR_RETURN(Model model, run.make_model(run.config, *run.dataset));
  try {
    std::vector<BlockProfile> profiles = options.profiles;
    if (profiles.empty()) profiles = ProfilesOfRun(run, rank);
    const LoopsSkipped skipped;
    const std::unique_ptr<Strategy> strategy = MakeStrategy(run, rank, std::move(model), profiles);
    return go(rank, *strategy, profiles);
  } catch (const StatusException& error) {
    return error.status();
  }
}

absl::StatusOr<Rehearsed> RehearseRank(const TrainingRun& run, const RehearsalOptions& options,
                                       Communicator& world) {
  RehearsalAllocator allocator;
  CalledKernels called;
  CpuKernels kernels(allocator, run.settings.instructions);
  kernels.Observe(&called);
  return WithRehearsedRank(
      run, options, world, kernels, nullptr,
      [&](Rank& rank, Strategy& strategy,
          const std::vector<BlockProfile>& profiles) -> absl::StatusOr<Rehearsed> {
        const auto copy = CopyOfState(run, rank, strategy);
        const TrainingRun shorter = WithShortValidation(run, rank.mesh);
        GoThrough(shorter, options, rank, strategy, profiles);
        if (options.shapes == RehearsalOptions::Shapes::kKnown) {
          GoThrough(shorter, options, rank, strategy, profiles);  // books anew
        }
        return Rehearsed{.memory = allocator.books(),
                         .prediction = strategy.Predict(),
                         .kernels = std::move(called.names)};
      });
}

// Step and validation run once before, for ranks to tell each other the shapes of what they send.
absl::StatusOr<RecordedStep> RecordRank(const TrainingRun& run, const RehearsalOptions& options,
                                        Communicator& world) {
  RehearsalAllocator allocator;
  StepRecorder recorder(allocator);
  CpuKernels kernels(allocator, run.settings.instructions);
  kernels.Observe(&recorder);
  return WithRehearsedRank(run, options, world, kernels, &recorder,
                           [&](Rank& rank, Strategy& strategy,
                               const std::vector<BlockProfile>&) -> absl::StatusOr<RecordedStep> {
                             rank.recorder = &recorder;
                             const auto copy = CopyOfState(run, rank, strategy);
                             PrefetchedBatches batches(run, rank, 0, run.settings.steps,
                                                       strategy.micro_batches());
                             const TrainingRun shorter = WithShortValidation(run, rank.mesh);
                             strategy.TrainStep(0, batches);
                             Validate(shorter, rank, strategy);
                             recorder.Start();
                             strategy.TrainStep(1, batches);
                             RecordedStep step = recorder.Finish();
                             Validate(shorter, rank, strategy);
                             step.validation_peaks = PeaksOf(allocator.books());
                             return step;
                           });
}

}  // namespace

absl::StatusOr<std::vector<Rehearsed>> Rehearse(const TrainingRun& run,
                                                const RehearsalOptions& options) {
  std::vector<Rehearsed> ranks(static_cast<size_t>(run.settings.mesh.ranks()));
  LS_RETURN_IF_ERROR(RunRanks(run.settings.mesh.ranks(),
                              {.timeout = absl::Seconds(run.settings.timeout_seconds)},
                              [&](RankHandle& handle) -> absl::Status {
                                LS_ASSIGN_OR_RETURN(ranks[static_cast<size_t>(handle.rank())],
                                                    RehearseRank(run, options, handle.comm()));
                                return absl::OkStatus();
                              }));
  return ranks;
}

absl::StatusOr<std::vector<RecordedStep>> RecordStep(const TrainingRun& run,
                                                     const RehearsalOptions& options) {
  const MeshShape& mesh = run.settings.mesh;
  std::vector<int> present;
  for (int pp = 0; pp < mesh.pp; ++pp) present.push_back(mesh.RankAt({.pp = pp}));
  std::vector<RecordedStep> steps(present.size());
  LS_RETURN_IF_ERROR(RunRanks(mesh.pp, {.timeout = absl::Seconds(run.settings.timeout_seconds)},
                              [&](RankHandle& handle) -> absl::Status {
                                const auto world =
                                    FoldedCommunicator::World(handle.comm(), mesh.ranks(), present);
                                LS_ASSIGN_OR_RETURN(steps[static_cast<size_t>(handle.rank())],
                                                    RecordRank(run, options, *world));
                                return absl::OkStatus();
                              }));
  return steps;
}

absl::Status CheckKernels(const TrainingRun& run) {
  if (run.dataset->packs_documents() && !run.devices->masks_documents()) {
    return absl::UnimplementedError(absl::StrCat(
        "the data packs documents, whose masks attention on --device ", Name(run.device),
        " lacks; use another --device, or leave data.separator or data.document_tokens out"));
  }
  const std::set<std::string> lacking = run.devices->lacking_kernels();
  if (lacking.empty()) return absl::OkStatus();
  LS_ASSIGN_OR_RETURN(const std::vector<Rehearsed> ranks, Rehearse(run));
  std::set<std::string> lacked;
  for (const Rehearsed& rank : ranks) {
    std::set_intersection(rank.kernels.begin(), rank.kernels.end(), lacking.begin(), lacking.end(),
                          std::inserter(lacked, lacked.end()));
  }
  if (lacked.empty()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "this run calls kernels that --device ", Name(run.device),
      " lacks: ", absl::StrJoin(lacked, ", "), "; use another --device or another model"));
}

void PredictMemory(const TrainingRun& run, const RehearsalOptions& options,
                   std::vector<RankReport>& reports) {
  RehearsalOptions as_routed = options;
  for (const RankReport& report : reports) as_routed.routed.push_back(report.routed);
  const absl::StatusOr<std::vector<Rehearsed>> ranks = Rehearse(run, as_routed);
  if (!ranks.ok()) {
    LOG(WARNING) << "activations, communication and workspace are not predicted: "
                 << ranks.status();
    return;
  }
  CHECK_EQ(ranks->size(), reports.size());
  const bool on_cpu = run.device == DeviceType::kCpu;
  for (size_t i = 0; i < reports.size(); ++i) {
    // Closed forms know the state of one role, and a rank may have another's besides.
    if (run.settings.guard.exchanges_ranks(run.settings.steps)) {
      for (CostPrediction::Memory& predicted : reports[i].prediction.memory) {
        predicted.bytes = (*ranks)[i].memory.peak(predicted.memory_class);
      }
    }
    for (const MemoryClass memory_class : {MemoryClass::kActivations, MemoryClass::kCommunication,
                                           MemoryClass::kWorkspace, MemoryClass::kCheckpoint}) {
      if (memory_class == MemoryClass::kWorkspace && !on_cpu) continue;
      reports[i].prediction.memory.push_back(
          {.memory_class = memory_class, .bytes = (*ranks)[i].memory.peak(memory_class)});
    }
  }
}

}  // namespace lockstep
