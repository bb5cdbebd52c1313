#include "core/run/trainer.h"

#include <algorithm>
#include <cmath>  // std::isfinite
#include <cstdio>
#include <iterator>  // std::next
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/parallel.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/checkpoint/checkpoint_list.h"
#include "core/checkpoint/checkpoint_writer.h"
#include "core/checkpoint/stored_checkpoint.h"
#include "core/comm/agree.h"
#include "core/comm/host_numbers.h"
#include "core/report/metrics.h"
#include "core/report/reporter.h"
#include "core/run/batches.h"
#include "core/run/loss_watch.h"
#include "core/run/mesh_change.h"
#include "core/run/model_weights.h"
#include "core/run/parameter_hash.h"
#include "core/run/rank_device.h"
#include "core/run/rank_in_leg.h"
#include "core/run/rehearsal.h"
#include "core/run/replica_guard.h"
#include "core/run/run_probe.h"
#include "core/run/validation.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// Steps that compile primitives and fill the allocator; times are taken after them.
constexpr int64_t kWarmUpSteps = 2;

constexpr char kLegLabel[] = "leg";

// Draws the calls of a step into the trace; those of one collective are joined across ranks.
void TraceCommunication(const std::vector<LedgerEntry>& entries, Trace& trace) {
  for (const LedgerEntry& entry : entries) {
    const Operation operation = entry.signature.operation;
    // With its members: a mesh has several groups of one name.
    const std::string group = entry.group->ToString();
    TraceEvent event = {.name = absl::StrCat(Name(operation), " ", entry.label),
                        .track = TraceTrack::kCommunication,
                        .start_nanos = entry.start_nanos,
                        .duration_nanos = entry.end_nanos - entry.start_nanos,
                        .bytes = entry.bytes,
                        .sequence = entry.sequence,
                        .detail = group};
    const int self = entry.group->rank, peer = entry.signature.root;
    if (operation == Operation::kSend) {
      event.flow = absl::StrCat(group, " ", self, ">", peer, " ", entry.sequence);
      event.flow_end = FlowEnd::kSource;
    } else if (operation == Operation::kRecv) {
      event.flow = absl::StrCat(group, " ", peer, ">", self, " ", entry.sequence);
      event.flow_end = FlowEnd::kTarget;
    } else {
      event.flow = absl::StrCat(group, " ", entry.sequence);
    }
    trace.Add(std::move(event));
  }
}

// The loop of one rank.
class Trainer {
 public:
  Trainer(const TrainingRun& run, const RankTools& tools, Ledger& ledger, RankReport& report)
      : run_(run), tools_(tools), ledger_(ledger), report_(report) {}

  absl::Status Run() {
    LS_ASSIGN_OR_RETURN(int64_t step, Start());
    while (true) {
      LS_RETURN_IF_ERROR(TrainLeg(step));
      report_.steps_behind = step;
      if (step < leg_->end_step) return StopAfter(step);
      if (leg_->next == nullptr) break;
      LS_RETURN_IF_ERROR(ChangeTo(*leg_->next, step));
    }
    return here_ == nullptr ? absl::OkStatus() : Finish(step);
  }

 private:
  static double Median(std::vector<double> values) {
    if (values.empty()) return 0;
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
  }

  // Whether something that is done every so many steps (0: never) follows a step.
  static bool IsDue(int64_t step, int64_t every) { return every > 0 && (step + 1) % every == 0; }

  bool has_base() const { return !base_.empty(); }
  Rank& rank() { return here_->rank(); }
  Strategy& strategy() { return here_->strategy(); }
  bool is_first() const { return tools_.world.rank() == 0; }  // which no leg leaves idle

  // Makes everything ready for the first step of this attempt, and returns how many are behind it.
  absl::StatusOr<int64_t> Start() {
    leg_ = &FirstLeg();
    LS_RETURN_IF_ERROR(Enter());
    int64_t step = 0;
    if (here_ != nullptr) {
      LS_RETURN_IF_ERROR(MakeBase());
      if (run_.resume) {
        LS_ASSIGN_OR_RETURN(step, Resume());
      }
      if (step == 0 && !has_base()) LS_RETURN_IF_ERROR(LoadInitial());
    }
    if (run_.next != nullptr) {
      LS_RETURN_IF_ERROR(BroadcastNumbers(tools_.world, absl::MakeSpan(&step, 1), 0, kLegLabel));
    }
    // All ranks have passed all checks: from here on the run directory changes.
    LS_RETURN_IF_ERROR(
        AgreeOnFirst(is_first() ? BeginDirectory() : absl::OkStatus(), tools_.world));
    run_.directory->Agreed();
    if (is_first()) LS_RETURN_IF_ERROR(OpenReporter(step));
    if (step == 0 && run_.settings.validation.at_start && here_ != nullptr) {
      report_.validation_at_start = Validate(*leg_, rank(), strategy());
      if (reporter_ != nullptr) reporter_->Start(*report_.validation_at_start);
    }
    return step;
  }

  // The leg that goes on with the newest checkpoint. What is wrong with that, Resume says.
  const TrainingRun& FirstLeg() const {
    if (!run_.resume || run_.next == nullptr) return run_;
    const auto path = NewestCheckpoint(run_.checkpoints());
    if (!path.ok() || !*path) return run_;
    const absl::StatusOr<CheckpointInfo> info = ReadCheckpointInfo(**path);
    return info.ok() ? LegAt(run_, info->step) : run_;
  }

  // Makes what this rank has in a leg.
  absl::Status Enter() {
    LS_ASSIGN_OR_RETURN(here_, RankInLeg::Make(*leg_, tools_));
    if (here_ == nullptr) return absl::OkStatus();
    report_.profiles = here_->profiles();
    report_.prediction = strategy().Predict();
    if (is_first() && !strategy().Note().empty()) LOG(INFO) << strategy().Note();
    return absl::OkStatus();
  }

  absl::Status OpenReporter(int64_t step) {
    LS_ASSIGN_OR_RETURN(reporter_, Reporter::Open(run_, step));
    const CutSettings& cut = run_.settings.cut;
    const auto note_of_mesh = [&](const char* key, int64_t count) {
      reporter_->Note(absl::StrCat(key, " = ", count,
                                   ", as the mesh says: another mesh sums in another order"));
    };
    if (cut.shards_are_of_mesh) note_of_mesh("cut.shards", cut.shards);
    if (cut.features_are_of_mesh) note_of_mesh("cut.features", cut.features);
    return absl::OkStatus();
  }

  // Trains the steps of the leg, or those before the run is stopped; an idle rank waits for their
  // end. `step` counts those that are behind.
  absl::Status TrainLeg(int64_t& step) {
    std::optional<PrefetchedBatches> batches;
    if (here_ != nullptr) {
      MakeCheckpointWriter();
      batches.emplace(*leg_, rank(), step, strategy().micro_batches());
      rank().allocator().ResetPeaks();
    }
    for (; step < leg_->end_step; ++step) {
      LS_ASSIGN_OR_RETURN(const bool begins, MayBegin(step));
      if (!begins) break;
      if (here_ != nullptr) {
        LS_RETURN_IF_ERROR(Step(step, *batches));
        if (IsDue(step, run_.settings.hash_every)) LS_RETURN_IF_ERROR(WriteHashes(step));
        LS_RETURN_IF_ERROR(Saved(step, writer_->Advance()));
        if (IsDue(step, run_.settings.guard.every)) LS_RETURN_IF_ERROR(CompareReplicas(step + 1));
        LS_RETURN_IF_ERROR(AfterStep(step));
      }
      steps_here_ += 1;
    }
    return absl::OkStatus();
  }

  // Whether the ranks begin a step: none does once any of them has been asked to stop. Threads that
  // all have work need not ask each other, as they share the request; idle ranks wait here.
  absl::StatusOr<bool> MayBegin(int64_t step) {
    const bool may_begin = run_.stop->MayBegin(step);
    if (!run_.are_processes && run_.next == nullptr) return may_begin;
    int64_t stops = may_begin ? 0 : 1;
    LS_RETURN_IF_ERROR(
        AllReduceNumbers(tools_.world, absl::MakeSpan(&stops, 1), ReduceOp::kMax, "stop"));
    return stops == 0;
  }

  absl::Status StopAfter(int64_t step) {
    if (steps_here_ == 0 || here_ == nullptr) return absl::OkStatus();
    return SaveLast(step);
  }

  // Goes over to another leg after `steps` steps: moves the state to its layout.
  absl::Status ChangeTo(const TrainingRun& next, int64_t steps) {
    const int64_t start = NowNanos();
    MeshChange change = {.steps = steps, .from = FormationOf(*leg_), .to = FormationOf(next)};
    std::vector<HeldState> held;
    if (here_ != nullptr) {
      LS_RETURN_IF_ERROR(EndCheckpointWriter(steps));
      held.push_back(strategy().State());
    }
    here_.reset();
    leg_ = &next;
    BeginReport();
    LS_RETURN_IF_ERROR(Enter());
    const HeldState wanted = here_ == nullptr ? HeldState() : strategy().State();
    LS_ASSIGN_OR_RETURN(const MovedBytes bytes,
                        MoveState(held, wanted, tools_.kernels, tools_.world));
    held.clear();
    if (here_ != nullptr) {
      strategy().Restored();
      LS_RETURN_IF_ERROR(HashBase());
    }
    // Ranks that were idle know of no checkpoint.
    LS_RETURN_IF_ERROR(AllReduceNumbers(tools_.world, absl::MakeSpan(&saved_steps_, 1),
                                        ReduceOp::kMax, kLegLabel));
    change.planned_bytes = bytes.planned;
    change.sent_bytes = bytes.sent;
    change.seconds = SecondsSince(start);
    report_.changes.push_back(change);
    return reporter_ == nullptr ? absl::OkStatus() : reporter_->Change(change);
  }

  static std::string FormationOf(const TrainingRun& leg) {
    return absl::StrCat(leg.strategy_name, " ", leg.settings.mesh.ToString());
  }

  // Times, traffic and memory are those of the last leg.
  void BeginReport() {
    report_.times = {};
    report_.measured_steps = 0;
    report_.kernel_nanos = 0;
    report_.traffic = {};
    report_.steps = 0;
    step_seconds_.clear();
  }

  absl::Status Finish(int64_t step) {
    if (steps_here_ == 0) LS_RETURN_IF_ERROR(FinishStopped(step));
    // By now it is known what has been routed where.
    report_.prediction.traffic = strategy().Predict().traffic;
    report_.trace = tools_.trace.Record();
    report_.memory = rank().allocator().books();
    report_.checkpoints = earlier_costs_ + writer_->costs();
    report_.median_step_seconds = Median(step_seconds_);
    LS_ASSIGN_OR_RETURN(report_.parameter_hash,
                        HashParameters(tools_.kernels, here_->ranks(), strategy().State()));
    return absl::OkStatus();
  }

  // What adapters are trained on: complete before any of their checkpoints is read, as these know
  // its hash.
  absl::Status MakeBase() {
    if (FrozenState(strategy().State()).empty()) return absl::OkStatus();
    LS_RETURN_IF_ERROR(LoadInitial());
    return HashBase();
  }

  absl::Status HashBase() {
    const std::vector<StateTensor> frozen = FrozenState(strategy().State());
    if (frozen.empty()) return absl::OkStatus();
    LS_ASSIGN_OR_RETURN(base_, HashParameters(tools_.kernels, here_->ranks(), frozen));
    return absl::OkStatus();
  }

  absl::Status LoadInitial() {
    const InitialWeights& initial = here_->initial();
    if (initial.path.empty()) return absl::OkStatus();
    LS_RETURN_IF_ERROR(Annotate(
        LoadInitialWeights(initial.path, initial.names, strategy().State(), tools_.kernels),
        "model.init"));
    strategy().Restored();
    return absl::OkStatus();
  }

  // Fills the state from the newest checkpoint that is sound, and returns the steps behind it.
  absl::StatusOr<int64_t> Resume() {
    Communicator& world = here_->ranks();
    const absl::StatusOr<std::vector<FoundCheckpoint>> found =
        CheckpointsByStep(run_.checkpoints());
    LS_RETURN_IF_ERROR(AgreeOnFirst(found.ok() ? absl::OkStatus() : found.status(), world));
    absl::Status first_damage;
    for (auto newest = found->rbegin(); newest != found->rend(); ++newest) {
      // All ranks read the same checkpoint, each its own part of it.
      const absl::StatusOr<CheckpointInfo> info = LoadFrom(newest->path);
      LS_ASSIGN_OR_RETURN(const int finder, FindsDamage(info.status()));
      if (finder < rank().size) {
        const bool has_older = std::next(newest) != found->rend();  // else the error below tells
        if (finder == rank().rank && has_older) {
          std::fprintf(stderr, "--resume passes a damaged checkpoint over: %s\n",
                       std::string(info.status().message()).c_str());
        }
        if (first_damage.ok()) first_damage = info.status();
        damaged_.push_back(newest->path);
        continue;
      }
      LS_RETURN_IF_ERROR(AgreeOnFirst(info.status(), world));
      LS_RETURN_IF_ERROR(AgreeOnFirst(CheckGoesOn(newest->path, info->step), world));
      if (info->step > 0) strategy().Restored();
      return info->step;
    }
    LS_RETURN_IF_ERROR(
        AgreeOnFirst(Annotate(first_damage, "no checkpoint is sound; the newest"), world));
    return absl::NotFoundError(absl::StrCat(run_.checkpoints(),
                                            ": holds no checkpoint that this rank can see; all "
                                            "ranks must see the run directory"));
  }

  absl::StatusOr<CheckpointInfo> LoadFrom(const std::string& path) {
    absl::StatusOr<CheckpointInfo> info =
        LoadCheckpoint(path,
                       {.model = ModelFingerprint(run_.config),
                        .base = base_,
                        .keys = KeysOfCurve(run_.keys),
                        .allowed_changes = run_.allowed_changes},
                       TrainedState(strategy().State()), tools_.kernels);
    if (run_.settings.checkpoint.on_damage == OnDamage::kGoBack || !IsDamage(info.status())) {
      return info;
    }
    return Annotate(info.status(),
                    "the run stops here, as checkpoint.on_damage is \"stop\"; with \"go_back\" it "
                    "goes on from the newest checkpoint that is sound");
  }

  // The first rank that found damage in a checkpoint which all ranks then pass over; the number of
  // ranks: none. `loaded`: how it went here.
  absl::StatusOr<int> FindsDamage(const absl::Status& loaded) {
    if (run_.settings.checkpoint.on_damage == OnDamage::kStop) return rank().size;
    int64_t first = IsDamage(loaded) ? rank().rank : rank().size;
    LS_RETURN_IF_ERROR(AllReduceNumbers(here_->ranks(), absl::MakeSpan(&first, 1), ReduceOp::kMin,
                                        "damaged checkpoint"));
    return static_cast<int>(first);
  }

  // Whether the run can go on behind a sound checkpoint.
  absl::Status CheckGoesOn(const std::string& path, int64_t steps) {
    if (steps > run_.settings.steps) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": has ", steps, " steps behind it, but train.steps is ",
                       run_.settings.steps, "; raise train.steps to go on"));
    }
    if (steps == run_.settings.steps && PathExists(run_.out + "/summary.json")) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": has all ", steps,
                       " steps behind it, and the run its summary: "
                       "nothing is left to do; raise train.steps to go on"));
    }
    return is_first() ? Reporter::Check(run_, steps) : absl::OkStatus();
  }

  // Begins to change the run directory.
  absl::Status BeginDirectory() {
    LS_RETURN_IF_ERROR(run_.directory->Begin());
    for (const std::string& path : damaged_) {
      LS_ASSIGN_OR_RETURN(const std::string aside, SetAsideDamaged(path));
      std::fprintf(stderr, "the damaged checkpoint is now %s\n", aside.c_str());
    }
    return absl::OkStatus();
  }

  // Finishes a run that was stopped between its last step and its summary. The last loss comes from
  // the file.
  absl::Status FinishStopped(int64_t steps) {
    LS_ASSIGN_OR_RETURN(const std::vector<LossPoint> losses,
                        ReadLossCurve(run_.out + "/losses.csv"));
    if (!losses.empty()) report_.losses.push_back(losses.back().loss);
    return AfterStep(steps - 1);
  }

  absl::Status Step(int64_t step, BatchSource& batches) {
    const CommTotals before = ledger_.Mark();
    const int64_t busy = tools_.kernels.busy_nanos();
    tools_.timer.BeginStep(step);
    if (tools_.trace.enabled()) {
      ledger_.StartTrace();
      rank().allocator().StartHistory();
    }
    if (rank().probe != nullptr) rank().probe->BeginStep(step, strategy().State());
    const StepResult result = strategy().TrainStep(step, batches);
    if (PassProbeOf(rank()) != nullptr) LS_RETURN_IF_ERROR(EndProbedStep(result));
    if (tools_.trace.enabled()) {
      TraceCommunication(ledger_.StopTrace(), tools_.trace);
      tools_.trace.AddMemory(rank().allocator().StopHistory());
    }
    const CommTotals traffic = ledger_.Since(before);
    const StepTimes times = tools_.timer.EndStep(traffic.in_flight_nanos);
    for (const auto& [kind, total] : traffic.by_kind) report_.traffic.by_kind[kind] += total;
    report_.steps += 1;
    report_.losses.push_back(result.loss);
    report_.loss_scale = result.loss_scale;
    report_.skipped_steps += result.skipped ? 1 : 0;
    if (report_.steps > kWarmUpSteps) {
      report_.times += times;
      report_.kernel_nanos += tools_.kernels.busy_nanos() - busy;
      report_.measured_steps += 1;
      step_seconds_.push_back(static_cast<double>(times.total) * 1e-9);
    }
    if (reporter_ != nullptr) {
      LS_RETURN_IF_ERROR(reporter_->Step(step, result, times, rank().allocator().books()));
    }
    if (result.skipped) return absl::OkStatus();
    if (std::isfinite(result.loss)) {
      const double mean = watch_.mean();
      if (!watch_.Jumps(result.loss)) return absl::OkStatus();
      LS_RETURN_IF_ERROR(Saved(step, writer_->Finish()));
      return AgreeOnFirst(Jumped(step, result, mean), here_->ranks());
    }
    if (run_.settings.on_nan == OnNan::kContinue) return absl::OkStatus();
    LS_RETURN_IF_ERROR(Saved(step, writer_->Finish()));
    return AgreeOnFirst(Diverged(step, result), here_->ranks());
  }

  absl::Status EndProbedStep(const StepResult& result) {
    rank().probe->Number("loss", result.loss);
    rank().probe->Number("gradient_norm", result.gradient_norm);
    rank().probe->Number("learning_rate", result.learning_rate);
    return rank().probe->EndStep(strategy().State());
  }

  // All ranks have the same loss: each says the same.
  static absl::Status Diverged(int64_t step, const StepResult& result) {
    return absl::OutOfRangeError(absl::StrCat(
        "step ", step + 1, ": the loss is ", result.loss, " (learning rate ", result.learning_rate,
        ", gradient norm ", result.gradient_norm,
        "), and the run stops before it saves anything. Lower schedule.learning_rate, or clip with "
        "train.clip_norm, and --resume from the newest checkpoint; train.on_nan=continue goes on. ",
        HowToRepeat(step)));
  }

  absl::Status Jumped(int64_t step, const StepResult& result, double mean) const {
    return absl::OutOfRangeError(absl::StrCat(
        "step ", step + 1, ": the loss jumps to ", result.loss, ", more than guard.loss_jump = ",
        run_.settings.guard.loss_jump, " times the ", mean, " of the steps before (learning rate ",
        result.learning_rate, ", gradient norm ", result.gradient_norm,
        "), and the run stops before it saves anything. --resume goes on from "
        "the newest checkpoint, with guard.loss_jump=0 past the jump. ",
        HowToRepeat(step)));
  }

  // How a user sees what happened in a step: no checkpoint behind it has been saved.
  static std::string HowToRepeat(int64_t step) {
    return absl::StrCat(
        "To see the step's tensors, repeat it in a copy of the run's directory: "
        "--resume --set train.steps=",
        step + 1, " --set probe.first_step=", step, " --set probe.steps=1 (docs/debugging.md)");
  }

  // Compares what ranks hold alike, after so many steps.
  absl::Status CompareReplicas(int64_t steps) {
    const absl::Status same =
        CheckReplicas(steps, strategy().State(), tools_.kernels, here_->ranks());
    return same.ok() ? same : AgreeOnFirst(same, here_->ranks());
  }

  absl::Status WriteHashes(int64_t step) {
    LS_ASSIGN_OR_RETURN(std::vector<TensorHash> hashes,
                        HashTensors(tools_.kernels, here_->ranks(), strategy().State()));
    if (reporter_ == nullptr) return absl::OkStatus();
    return reporter_->Hashes({.step = step, .tensors = std::move(hashes)});
  }

  absl::Status AfterStep(int64_t step) {
    const bool last = step + 1 == run_.settings.steps;
    if (last || IsDue(step, run_.settings.validation.every)) {
      report_.validation = Validate(*leg_, rank(), strategy());
      if (reporter_ != nullptr) {
        LS_RETURN_IF_ERROR(reporter_->Validation(step, report_.validation));
      }
    }
    if (last) return SaveLast(step + 1);
    return IsDue(step, run_.settings.checkpoint.every) ? SaveOnTheWay(step + 1) : absl::OkStatus();
  }

  void MakeCheckpointWriter() {
    const CheckpointSettings& checkpoint = run_.settings.checkpoint;
    // A checkpoint is only as good as the losses of the steps behind it.
    const auto sync = [this] {
      return reporter_ == nullptr ? absl::OkStatus() : reporter_->Sync();
    };
    writer_.emplace(run_.checkpoints(),
                    SaveOptions{.files = checkpoint.files, .keep = checkpoint.keep, .sync = sync},
                    tools_.kernels, here_->ranks());
    if (!run_.settings.copies_state()) return;
    const bool on_cpu = rank().allocator().device().type == DeviceType::kCpu;
    writer_->Reserve(TrainedState(strategy().State()), on_cpu ? rank().allocator() : host_);
  }

  // Ends what is still written before the ranks of a leg part, after `steps` steps.
  absl::Status EndCheckpointWriter(int64_t steps) {
    LS_RETURN_IF_ERROR(Saved(steps - 1, writer_->Finish()));
    earlier_costs_ = earlier_costs_ + writer_->costs();
    reported_costs_ = {};
    writer_.reset();
    return absl::OkStatus();
  }

  CheckpointInfo InfoOf(int64_t steps) const {
    return {.step = steps,
            .model = ModelFingerprint(run_.config),
            .strategy = leg_->strategy_name,
            .base = base_,
            .keys = KeysOfCurve(run_.keys)};
  }

  // Whether a checkpoint with `steps` behind it is wanted, and has not been begun.
  bool IsWanted(int64_t steps) const {
    return run_.settings.checkpoint.keep > 0 && steps != saved_steps_;
  }

  // Saves a checkpoint with `steps` behind it; training goes on.
  absl::Status SaveOnTheWay(int64_t steps) {
    if (!IsWanted(steps)) return absl::OkStatus();
    if (!writer_->has_reserved()) return SaveLast(steps);
    LS_RETURN_IF_ERROR(Saved(steps - 1, writer_->Finish()));
    if (run_.settings.guard.every > 0) LS_RETURN_IF_ERROR(CompareReplicas(steps));
    saved_steps_ = steps;
    return Saved(steps - 1, writer_->Begin(InfoOf(steps), TrainedState(strategy().State())));
  }

  // Saves a checkpoint with `steps` behind it. When this returns, all checkpoints are on the disk.
  absl::Status SaveLast(int64_t steps) {
    LS_RETURN_IF_ERROR(Saved(steps - 1, writer_->Finish()));
    if (!IsWanted(steps)) return absl::OkStatus();
    if (run_.settings.guard.every > 0) LS_RETURN_IF_ERROR(CompareReplicas(steps));
    saved_steps_ = steps;
    return Saved(steps - 1, writer_->Save(InfoOf(steps), TrainedState(strategy().State())));
  }

  // Ends the run where a checkpoint could not be saved, and reports one that got its name. `step`:
  // the step that was done last.
  absl::Status Saved(int64_t step, const absl::Status& status) {
    const CheckpointCosts costs = writer_->costs() - reported_costs_;
    if (costs.checkpoints > 0) {
      reported_costs_ = writer_->costs();
      if (reporter_ != nullptr) {
        LS_RETURN_IF_ERROR(reporter_->Checkpoint(step, saved_steps_, costs));
      }
    }
    // Weights that are infinite or NaN, which nobody could go on from.
    if (absl::IsOutOfRange(status) && run_.settings.on_nan == OnNan::kContinue) {
      if (reporter_ != nullptr) reporter_->Note(std::string(status.message()));
      return absl::OkStatus();
    }
    // All ranks have the same status: one tells.
    return status.ok() ? status : AgreeOnFirst(status, here_->ranks());
  }

  const TrainingRun& run_;
  const RankTools tools_;
  Ledger& ledger_;
  RankReport& report_;
  const TrainingRun* leg_ = nullptr;
  std::unique_ptr<RankInLeg> here_;     // null: idle
  std::string base_;                    // hash of what is frozen; empty: nothing is
  std::unique_ptr<Reporter> reporter_;  // rank 0's
  std::vector<double> step_seconds_;
  std::vector<std::string> damaged_;        // newer than the checkpoint that the run goes on from
  int64_t steps_here_ = 0;                  // in this attempt
  int64_t saved_steps_ = 0;                 // behind the newest checkpoint of this attempt
  CpuAllocator host_;                       // copies of a device's state
  std::optional<CheckpointWriter> writer_;  // of the ranks of this leg; none: idle
  CheckpointCosts earlier_costs_;           // of the writers of earlier legs
  CheckpointCosts reported_costs_;          // of writer_
  LossWatch watch_{run_.settings.guard.loss_jump};
};

}  // namespace

absl::Status TrainRank(const TrainingRun& run, RankHandle& handle, RankReport& report) {
  SetThreads(static_cast<int>(run.settings.threads));
  const auto timeout = absl::ToChronoNanoseconds(absl::Seconds(run.settings.timeout_seconds));
  LS_ASSIGN_OR_RETURN(
      const std::unique_ptr<RankDevice> device,
      run.devices->Make(handle.comm(), {.timeout = timeout,
                                        .fp32_products = run.settings.precision.fp32_products,
                                        .nccl_reductions = run.settings.nccl_reductions}));
  Kernels& kernels = device->kernels();
  kernels.allocator().set_limit(run.settings.memory_limit);
  Trace trace(handle.rank(), run.settings.trace);
  StepTimer timer(
      {.exposed_nanos = [&handle] { return handle.ledger().Mark().All().exposed_nanos; },
       .trace = &trace});
  const RankTools tools = {
      .world = device->world(), .kernels = kernels, .timer = timer, .trace = trace};
  // Here what was thrown inside a pass becomes a status again.
  try {
    return Trainer(run, tools, handle.ledger(), report).Run();
  } catch (const StatusException& error) {
    return error.status();
  }
}

absl::StatusOr<std::vector<RankReport>> TrainRanks(const TrainingRun& run) {
  LS_RETURN_IF_ERROR(CheckFits(run));
  for (const TrainingRun* leg = &run; leg != nullptr; leg = leg->next.get()) {
    LS_RETURN_IF_ERROR(CheckKernels(*leg));
  }
  std::vector<RankReport> reports(static_cast<size_t>(WorldSize(run)));
  LS_RETURN_IF_ERROR(RunRanks(WorldSize(run), LaunchOptionsOf(run), [&](RankHandle& handle) {
    return TrainRank(run, handle, reports[handle.rank()]);
  }));
  // Ranks that the last leg leaves idle have nothing to report.
  reports.resize(static_cast<size_t>(LastLeg(run).settings.mesh.ranks()));
  return reports;
}

LaunchOptions LaunchOptionsOf(const TrainingRun& run) {
  return {.timeout = absl::Seconds(run.settings.timeout_seconds), .post_mortem = [&run] {
            const bool has_begun = run.directory != nullptr && run.directory->has_begun();
            return has_begun ? run.out + "/post_mortem" : "";
          }};
}

}  // namespace lockstep
