#include "core/run/rehearsal.h"

#include <algorithm>
#include <iterator>  // std::inserter
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "core/base/parallel.h"
#include "core/base/status.h"
#include "core/comm/launch.h"
#include "core/comm/mesh.h"
#include "core/comm/quiet_communicator.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/run/batches.h"
#include "core/run/profile_blocks.h"
#include "core/run/validation.h"
#include "core/tensor/allocator.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// A validation in which a rank has one batch.
TrainingRun WithShortValidation(TrainingRun run, const Mesh& mesh) {
  run.settings.validation.batches =
      std::min<int64_t>(run.settings.validation.batches, mesh.data().size());
  return run;
}

// The beginning of a run, and its end.
void GoThrough(const TrainingRun& run, Rank& rank, Strategy& strategy) {
  PrefetchedBatches batches(run, rank, 0, strategy.micro_batches());
  rank.allocator().ResetPeaks();
  for (int64_t step = 0; step < std::min<int64_t>(2, run.settings.steps); ++step) {
    strategy.TrainStep(step, batches);
  }
  Validate(run, rank, strategy);
}

absl::StatusOr<Rehearsed> RehearseRank(const TrainingRun& run, const RehearsalOptions& options,
                                       RankHandle& handle) {
  SetThreads(static_cast<int>(run.settings.threads));
  CpuAllocator allocator;
  std::set<std::string> calls;
  CpuKernels kernels(allocator, run.settings.instructions);
  kernels.RecordCalls(&calls);
  const bool on_cpu = run.device == DeviceType::kCpu;
  QuietCommunicator world(
      handle.comm(),
      on_cpu ? options.held_bytes : run.devices->held_bytes(run.settings.nccl_reductions));
  LS_ASSIGN_OR_RETURN(Mesh mesh, Mesh::Create(run.settings.mesh, world));
  Trace trace(handle.rank(), TraceWindow{});
  StepTimer timer({});
  Rank rank(kernels, mesh, timer, trace);
  LS_ASSIGN_OR_RETURN(Model model, run.make_model(run.config, *run.dataset));
  try {
    std::vector<BlockProfile> profiles = options.profiles;
    if (profiles.empty()) profiles = ProfilesOfRun(run, rank);
    const LoopsSkipped skipped;
    const std::unique_ptr<Strategy> strategy =
        MakeStrategy(run, rank, std::move(model), std::move(profiles));
    const TrainingRun shorter = WithShortValidation(run, mesh);
    // Once for ranks to tell each other the shapes of what they send.
    GoThrough(shorter, rank, *strategy);
    GoThrough(shorter, rank, *strategy);
    return Rehearsed{.memory = allocator.books(),
                     .prediction = strategy->Predict(),
                     .kernels = std::move(calls)};
  } catch (const StatusException& error) {
    return error.status();
  }
}

}  // namespace

absl::StatusOr<std::vector<Rehearsed>> Rehearse(const TrainingRun& run,
                                                const RehearsalOptions& options) {
  std::vector<Rehearsed> ranks(static_cast<size_t>(run.settings.mesh.ranks()));
  LS_RETURN_IF_ERROR(RunRanks(run.settings.mesh.ranks(),
                              {.timeout = absl::Seconds(run.settings.timeout_seconds)},
                              [&](RankHandle& handle) -> absl::Status {
                                LS_ASSIGN_OR_RETURN(ranks[static_cast<size_t>(handle.rank())],
                                                    RehearseRank(run, options, handle));
                                return absl::OkStatus();
                              }));
  return ranks;
}

absl::Status CheckKernels(const TrainingRun& run) {
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
  const absl::StatusOr<std::vector<Rehearsed>> ranks = Rehearse(run, options);
  if (!ranks.ok()) {
    LOG(WARNING) << "activations, communication and workspace are not predicted: "
                 << ranks.status();
    return;
  }
  CHECK_EQ(ranks->size(), reports.size());
  const bool on_cpu = run.device == DeviceType::kCpu;
  for (size_t i = 0; i < reports.size(); ++i) {
    for (const MemoryClass memory_class :
         {MemoryClass::kActivations, MemoryClass::kCommunication, MemoryClass::kWorkspace}) {
      if (memory_class == MemoryClass::kWorkspace && !on_cpu) continue;
      reports[i].prediction.memory.push_back(
          {.memory_class = memory_class, .bytes = (*ranks)[i].memory.peak(memory_class)});
    }
  }
}

}  // namespace lockstep
