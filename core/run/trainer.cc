#include "core/run/trainer.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "core/base/clock.h"
#include "core/base/parallel.h"
#include "core/base/program.h"
#include "core/base/status.h"
#include "core/checkpoint/in_memory.h"
#include "core/checkpoint/spread_copies.h"
#include "core/comm/agree.h"
#include "core/comm/host_numbers.h"
#include "core/report/metrics.h"
#include "core/report/reporter.h"
#include "core/report/restart_log.h"
#include "core/run/device/rank_device.h"
#include "core/run/guard/loss_watch.h"
#include "core/run/guard/non_finite_search.h"
#include "core/run/guard/run_guards.h"
#include "core/run/guard/sound_state.h"
#include "core/run/guard/straggler_watch.h"
#include "core/run/leg/batches.h"
#include "core/run/leg/mesh_change.h"
#include "core/run/leg/rank_in_leg.h"
#include "core/run/leg/trace_communication.h"
#include "core/run/leg/validation.h"
#include "core/run/record/routed_steps.h"
#include "core/run/record/run_probe.h"
#include "core/run/rehearsal.h"
#include "core/run/saving/best_watch.h"
#include "core/run/saving/checkpoint_saver.h"
#include "core/run/saving/in_memory_saver.h"
#include "core/run/saving/resume.h"
#include "core/run/strategy/model_weights.h"
#include "core/run/strategy/parameter_hash.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// Steps that compile primitives and fill the allocator; times are taken after them.
constexpr int64_t kWarmUpSteps = 2;

constexpr char kLegLabel[] = "leg";

// Tells of each micro-batch before it goes to the strategy.
class ToldBatches final : public BatchSource {
 public:
  ToldBatches(BatchSource& batches, std::function<void()> tell)
      : batches_(batches), tell_(std::move(tell)) {}

  Batch Next() override {
    tell_();
    return batches_.Next();
  }
  void FetchAhead() override { batches_.FetchAhead(); }

 private:
  BatchSource& batches_;
  const std::function<void()> tell_;
};

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
      if (best_.ends_run()) break;
      if (step < leg_->end_step) return EndCopies(StopAfter(step));
      if (leg_->next == nullptr) break;
      LS_RETURN_IF_ERROR(TellOfMemory(step, Catching([&] { return ChangeTo(*leg_->next, step); })));
    }
    report_.ended_early = step < run_.settings.steps;
    report_.trace = tools_.trace.Record();  // also of a rank that the last leg leaves idle
    return EndCopies(here_ == nullptr ? absl::OkStatus() : Finish(step));
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
  void Visit(RunPlace::Where where, int64_t step) const {
    if (run_.visit) run_.visit({.rank = tools_.world.rank(), .step = step, .where = where});
  }
  bool is_first() const { return tools_.world.rank() == 0; }  // which no leg leaves idle
  bool is_first_here() const { return run_.machines.IsFirst(tools_.world.rank()); }

  // Makes everything ready for the first step of this attempt, and returns how many are behind it.
  absl::StatusOr<int64_t> Start() {
    // Whether or not this run makes copies: an earlier one's, which some machines may have and
    // others not, must be all ranks' or none's.
    if (run_.resume && run_.machines.are_several()) {
      LS_RETURN_IF_ERROR(
          BringTogether(run_.out, run_.machines, tools_.world,
                        [this](int64_t steps) { return CheckHasRows(run_, steps); }));
    } else if (run_.resume) {
      if (is_first()) PutCopiesBack(run_.out);
      LS_RETURN_IF_ERROR(AgreeOnFirst(absl::OkStatus(), tools_.world));  // all see them
    }
    Resumed resumed;
    int64_t step = 0;
    for (const TrainingRun* wanted = &FirstLegOf(run_); leg_ != wanted;) {
      leg_ = wanted;
      LS_ASSIGN_OR_RETURN(resumed, EnterFirst());
      step = resumed.steps;
      if (run_.next == nullptr) break;
      LS_RETURN_IF_ERROR(BroadcastNumbers(tools_.world, absl::MakeSpan(&step, 1), 0, kLegLabel));
      wanted = &LegAt(run_, step);  // an earlier one behind a damaged checkpoint
    }
    // All ranks have passed all checks: from here on the run directory changes.
    LS_RETURN_IF_ERROR(
        AgreeOnFirst(is_first() ? BeginDirectory(resumed) : absl::OkStatus(), tools_.world));
    run_.directory->Agreed();
    if (is_first_here()) {
      RemoveFoldersOfEarlierRuns(run_.out);
      RemoveCopiesApart(run_.out);
      if (!run_.resume) RemoveInMemoryFolder(run_.out);                        // of lost ranks
      for (const std::string& copy : resumed.passed_copies) RemoveTree(copy);  // nobody wants them
    }
    if (is_first()) LS_RETURN_IF_ERROR(OpenReporter(step, resumed));
    std::optional<ValidationPart> own;
    if (step == 0 && run_.settings.validation.at_start && here_ != nullptr) {
      own = EvaluatePart(*leg_, rank(), strategy());
      report_.validation_at_start = SumOfParts(*own, rank().mesh);
    }
    report_.start_traffic = ledger_.Mark();
    if (own) {
      LS_RETURN_IF_ERROR(guards_.CheckValidation(step, *own, *here_));
      if (reporter_ != nullptr) reporter_->Start(*report_.validation_at_start);
    }
    return step;
  }

  // Makes what this rank has in the leg that the attempt begins with, and loads its state.
  absl::StatusOr<Resumed> EnterFirst() {
    here_.reset();  // of a leg that was entered in vain
    base_.clear();
    LS_RETURN_IF_ERROR(Enter());
    Resumed resumed;
    if (here_ == nullptr) return resumed;
    LS_RETURN_IF_ERROR(MakeBase());
    if (run_.resume) {
      LS_ASSIGN_OR_RETURN(resumed, Resume(run_, *here_, base_, tools_.kernels));
      guards_.sound().Resumed(resumed.steps, resumed.checked_steps);
      const std::string metrics = run_.out + "/metrics.jsonl";
      LS_RETURN_IF_ERROR(watch_.Resume(metrics, resumed.steps, here_->ranks()));
      LS_RETURN_IF_ERROR(best_.Resume(
          {.metrics = metrics, .best_folder = BestFolder(run_), .steps = resumed.steps},
          here_->ranks()));
    }
    if (resumed.steps == 0 && !has_base()) LS_RETURN_IF_ERROR(LoadInitial());
    return resumed;
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

  absl::Status OpenReporter(int64_t step, const Resumed& resumed) {
    const bool is_in_memory = IsInMemory(resumed.path);
    if (run_.resume) {
      // //tools/launch reads it when it sees losses.csv change, and so it comes first.
      LS_RETURN_IF_ERROR(
          WriteResumed(run_.out, {.steps = step, .state = is_in_memory ? "memory" : "disk"}));
    }
    const char* where = is_in_memory ? "the copy in memory " : "";
    LS_ASSIGN_OR_RETURN(reporter_, Reporter::Open(run_, step, absl::StrCat(where, resumed.path)));
    saver_.set_reporter(reporter_.get());
    copies_.set_reporter(reporter_.get());
    const CutSettings& cut = run_.settings.cut;
    const auto note_of_mesh = [&](const char* key, int64_t count) {
      reporter_->Note(absl::StrCat(key, " = ", count,
                                   ", as the mesh says: another mesh sums in another order"));
    };
    if (cut.shards_are_of_mesh) note_of_mesh("cut.shards", cut.shards);
    if (cut.features_are_of_mesh) note_of_mesh("cut.features", cut.features);
    if (run_.settings.attention() != run_.settings.precision.attention) {
      reporter_->Note(absl::StrCat(
          "attention by our own kernels: cut.tokens = ", cut.tokens, " and cut.features = ",
          cut.features, " let ranks divide tokens and heads, which may move cuDNN's bits"));
    }
    return absl::OkStatus();
  }

  // Trains the steps of the leg, or those before the run is stopped; an idle rank waits for their
  // end. `step` counts those that are behind.
  absl::Status TrainLeg(int64_t& step) {
    std::optional<PrefetchedBatches> batches;
    if (here_ != nullptr) {
      saver_.Enter(*here_);
      LS_RETURN_IF_ERROR(copies_.Enter(*here_));
      batches.emplace(*leg_, rank(), step, leg_->end_step, strategy().micro_batches());
      rank().allocator().ResetPeaks();
      peaks_.emplace(rank().allocator().books());
      rank().routing = &*peaks_;
    }
    for (; step < leg_->end_step && !best_.ends_run(); ++step) {
      LS_ASSIGN_OR_RETURN(const bool begins, MayBegin(step));
      if (!begins) break;
      if (here_ != nullptr) {
        LS_RETURN_IF_ERROR(copies_.Compare(step));
        Visit(RunPlace::Where::kStepBegin, step);
        ToldBatches told(*batches, [&] { Visit(RunPlace::Where::kMicroBatch, step); });
        LS_RETURN_IF_ERROR(Step(step, told));
        Visit(RunPlace::Where::kStepEnd, step);
        if (IsDue(step, run_.settings.hash_every)) LS_RETURN_IF_ERROR(WriteHashes(step));
        LS_RETURN_IF_ERROR(saver_.Advance(step));
        LS_RETURN_IF_ERROR(guards_.AfterSteps(step + 1, *here_));
        LS_RETURN_IF_ERROR(AfterStep(step));
      }
      steps_here_ += 1;
    }
    return absl::OkStatus();
  }

  // Whether the ranks begin a step: none does once any of them has been asked to stop. Threads
  // share the request, processes ask each other. Idle ranks first wait for the end of the step
  // before: a rank that asked earlier would count a step as begun that others have not come to.
  absl::StatusOr<bool> MayBegin(int64_t step) {
    const bool has_idle_ranks = leg_->settings.mesh.ranks() < tools_.world.size();
    if (has_idle_ranks) LS_RETURN_IF_ERROR(tools_.world.Barrier("step").Wait());
    const bool may_begin = run_.stop->MayBegin(step);
    if (!run_.are_processes) return may_begin;
    int64_t stops = may_begin ? 0 : 1;
    LS_RETURN_IF_ERROR(
        AllReduceNumbers(tools_.world, absl::MakeSpan(&stops, 1), ReduceOp::kMax, "stop"));
    return stops == 0;
  }

  absl::Status StopAfter(int64_t step) {
    if (steps_here_ == 0 || here_ == nullptr) return absl::OkStatus();
    return SaveLast(step);
  }

  // Saves a state that no further step will look at.
  absl::Status SaveLast(int64_t steps) {
    LS_RETURN_IF_ERROR(guards_.BeforeSavingLast(steps, *here_));
    return saver_.SaveAndWait(steps);
  }

  // Goes over to another leg after `steps` steps: moves the state to its layout.
  absl::Status ChangeTo(const TrainingRun& next, int64_t steps) {
    MeshChange change = {.steps = steps, .from = FormationOf(*leg_), .to = FormationOf(next)};
    const int64_t start = NowNanos();
    Visit(RunPlace::Where::kLegEnd, steps);
    if (here_ != nullptr) LS_RETURN_IF_ERROR(saver_.Leave(steps));  // waits for the disk
    const CommTotals before = ledger_.Mark();
    std::vector<HeldState> held;
    LS_RETURN_IF_ERROR(guards_.BeginMove(steps, here_.get()));
    if (here_ != nullptr) {
      LS_RETURN_IF_ERROR(copies_.Compare(steps));
      copies_.Leave();
      held.push_back(strategy().State());
    }
    here_.reset();
    leg_ = &next;
    BeginReport();
    LS_RETURN_IF_ERROR(Enter());
    Visit(RunPlace::Where::kMeshChange, steps);
    const HeldState wanted = here_ == nullptr ? HeldState() : strategy().State();
    LS_ASSIGN_OR_RETURN(const MovedBytes bytes,
                        MoveState(held, wanted, tools_.kernels, tools_.world));
    held.clear();
    stragglers_.BeginWindow();
    if (here_ != nullptr) {
      strategy().Restored();
      LS_RETURN_IF_ERROR(HashBase());
    }
    LS_RETURN_IF_ERROR(guards_.EndMove(change, here_.get()));
    // Ranks that were idle know of no checkpoint and of no loss.
    LS_RETURN_IF_ERROR(saver_.Share());
    LS_RETURN_IF_ERROR(watch_.Share(tools_.world));
    LS_RETURN_IF_ERROR(best_.Share(tools_.world));
    change.planned_bytes = bytes.planned;
    change.sent_bytes = bytes.sent;
    change.seconds = SecondsSince(start);
    report_.start_traffic = ledger_.Since(before);
    report_.changes.push_back(change);
    return reporter_ == nullptr ? absl::OkStatus() : reporter_->Change(change);
  }

  // Says of an error for want of memory that it came in the change of mesh behind `steps` steps.
  static absl::Status TellOfMemory(int64_t steps, const absl::Status& changed) {
    if (!absl::IsResourceExhausted(changed)) return changed;
    return Annotate(changed, absl::StrCat("at the change of mesh behind step ", steps,
                                          ", where the state of both layouts is held at once"));
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

  // Removes the copies in memory of a run that has ended well, unless they have what the disk has
  // not: it keeps no checkpoints, or saves none of weights that are not finite. Then a run that was
  // stopped goes on from them, and so does one whose summary cannot be written.
  absl::Status EndCopies(const absl::Status& ended) const {
    const bool are_wanted = IsNewestInMemory(run_.out);
    if (ended.ok() && is_first_here() && !are_wanted) RemoveInMemoryFolder(run_.out);
    return ended;
  }

  absl::Status Finish(int64_t step) {
    if (steps_here_ == 0) LS_RETURN_IF_ERROR(FinishStopped(step));
    // By now it is known what has been routed where.
    report_.prediction.traffic = strategy().Predict().traffic;
    report_.memory = rank().allocator().books();
    report_.routed = peaks_->steps();
    report_.checkpoints = saver_.costs();
    report_.guard = guards_.costs();
    report_.slow_ranks = stragglers_.slow_ranks();
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
    const absl::Status loaded = Annotate(
        LoadInitialWeights(initial.path, initial.names, strategy().State(), tools_.kernels),
        "model.init");
    // Damage that somebody has to mend: no rank is lost by it.
    if (absl::IsDataLoss(loaded)) return absl::FailedPreconditionError(loaded.message());
    LS_RETURN_IF_ERROR(loaded);
    strategy().Restored();
    return absl::OkStatus();
  }

  // Begins to change the run directory.
  absl::Status BeginDirectory(const Resumed& resumed) {
    LS_RETURN_IF_ERROR(run_.directory->Begin());
    RemoveBestBehind(run_, resumed.steps);
    return SetAside(resumed.damaged);
  }

  // Finishes a run that was stopped between its last step and its summary. The last loss comes from
  // the file.
  absl::Status FinishStopped(int64_t steps) {
    LS_ASSIGN_OR_RETURN(const std::vector<LossPoint> losses,
                        ReadLossCurve(run_.out + "/losses.csv"));
    if (!losses.empty()) report_.losses.push_back(losses.back().loss);
    LS_RETURN_IF_ERROR(ValidateAfter(steps - 1));
    return SaveLast(steps);
  }

  absl::Status Step(int64_t step, BatchSource& batches) {
    // First, for what watches the step for the guard hands on to it what it sees.
    if (rank().probe != nullptr) rank().probe->BeginStep(step, strategy().State());
    LS_RETURN_IF_ERROR(guards_.BeginStep(step, *here_));
    const CommTotals before = ledger_.Mark();
    const int64_t busy = tools_.kernels.busy_nanos();
    tools_.timer.BeginStep(step);
    if (tools_.trace.enabled()) {
      ledger_.StartTrace();
      rank().allocator().StartHistory();
    }
    peaks_->Begin(RoutedStep::Kind::kTraining);
    const StepResult result = strategy().TrainStep(step, batches);
    peaks_->End(RoutedStep::Kind::kTraining, rank().allocator().books());
    if (RunProbe* probe = RunProbeOf(rank())) LS_RETURN_IF_ERROR(EndProbedStep(*probe, result));
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
    // The times of warm-up steps are dropped. A run that ends within them keeps them, and says so.
    if (report_.steps == kWarmUpSteps + 1) {
      report_.times = {};
      report_.kernel_nanos = 0;
      report_.measured_steps = 0;
      step_seconds_.clear();
    }
    report_.times += times;
    report_.kernel_nanos += tools_.kernels.busy_nanos() - busy;
    report_.measured_steps += 1;
    step_seconds_.push_back(static_cast<double>(times.total) * 1e-9);
    LS_RETURN_IF_ERROR(guards_.EndStep(step, result, *here_,
                                       [&](RankInLeg& where) { return Again(step, where); }));
    if (reporter_ != nullptr) {
      LS_RETURN_IF_ERROR(reporter_->Step(step, result, times, rank().allocator().books()));
    }
    LS_RETURN_IF_ERROR(CompareRanks(step, times));
    absl::Status judged = watch_.Take(step, result);
    if (judged.ok()) return judged;
    LS_RETURN_IF_ERROR(saver_.Finish(step + 1));
    if (!LossWatch::IsFinite(result)) judged = Locate(judged, step);
    return AgreeOnFirst(judged, here_->ranks());
  }

  // Names ranks that are slower than others with the same work.
  absl::Status CompareRanks(int64_t step, const StepTimes& times) {
    LS_ASSIGN_OR_RETURN(const std::vector<Straggler> slow,
                        stragglers_.Take(step, times, here_->ranks(), leg_->settings.mesh.pp));
    for (const Straggler& straggler : slow) {
      if (reporter_ != nullptr) LS_RETURN_IF_ERROR(reporter_->Slow(straggler));
    }
    return absl::OkStatus();
  }

  // Trains a step once more, whose times and traffic are not reported.
  StepResult Again(int64_t step, RankInLeg& where) {
    PrefetchedBatches batches(*leg_, where.rank(), step, step + 1,
                              where.strategy().micro_batches());
    tools_.timer.BeginStep(step);
    StepResult result = where.strategy().TrainStep(step, batches);
    tools_.timer.EndStep(0);
    return result;
  }

  absl::Status EndProbedStep(RunProbe& probe, const StepResult& result) {
    probe.Number("loss", result.loss);
    probe.Number("gradient_norm", result.gradient_norm);
    probe.Number("learning_rate", result.learning_rate);
    return probe.EndStep(strategy().State());
  }

  // Repeats a step whose loss or gradients are not finite, which has updated nothing, and adds to
  // `error` where they first were not. The others are spoken for: see NonFiniteSearch.
  absl::Status Locate(const absl::Status& error, int64_t step) {
    PrefetchedBatches batches(*leg_, rank(), step, step + 1, strategy().micro_batches());
    NonFiniteSearch search(here_->blocks(), tools_.kernels);
    tools_.timer.BeginStep(step);
    rank().search = &search;
    strategy().TrainStep(step, batches);
    rank().search = nullptr;
    return search.Explain(error, here_->ranks());
  }

  absl::Status WriteHashes(int64_t step) {
    LS_ASSIGN_OR_RETURN(std::vector<TensorHash> hashes,
                        HashTensors(tools_.kernels, here_->ranks(), strategy().State()));
    if (reporter_ == nullptr) return absl::OkStatus();
    return reporter_->Hashes({.step = step, .tensors = std::move(hashes)});
  }

  absl::Status ValidateAfter(int64_t step) {
    const ValidationPart own = EvaluatePart(*leg_, rank(), strategy());
    LS_RETURN_IF_ERROR(guards_.CheckValidation(step + 1, own, *here_));
    report_.validation = SumOfParts(own, rank().mesh);
    return reporter_ == nullptr ? absl::OkStatus()
                                : reporter_->Validation(step, report_.validation);
  }

  absl::Status AfterStep(int64_t step) {
    bool last = step + 1 == run_.settings.steps;
    if (last || IsDue(step, run_.settings.validation.every)) {
      LS_RETURN_IF_ERROR(ValidateAfter(step));
      const bool is_best = best_.Take(report_.validation.loss);
      if (is_best && best_.keeps_best()) {
        LS_RETURN_IF_ERROR(guards_.BeforeSaving(step + 1, *here_));
        LS_RETURN_IF_ERROR(saver_.SaveBest(step + 1));
      }
      last = last || best_.ends_run();
    }
    if (last) return SaveLast(step + 1);
    const bool is_due = IsDue(step, run_.settings.checkpoint.every);
    if (is_due || copies_.IsDue(step + 1)) {
      LS_RETURN_IF_ERROR(guards_.BeforeSaving(step + 1, *here_));
    }
    LS_RETURN_IF_ERROR(copies_.AfterSteps(step + 1));
    if (!is_due) return absl::OkStatus();
    LS_RETURN_IF_ERROR(saver_.Save(step + 1));
    Visit(RunPlace::Where::kCheckpoint, step);
    return absl::OkStatus();
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
  int64_t steps_here_ = 0;  // in this attempt
  RunGuards guards_{run_.settings, tools_, [this](const SoundState::Suspects& suspects) {
                      saver_.EndWriting();  // or what is being written gets its name afterwards
                      return SetAsideSuspects(run_, suspects, tools_.world.rank());
                    }};
  LossWatch watch_{run_.settings, run_.checkpoints()};
  StragglerWatch stragglers_{run_.settings.guard};
  BestWatch best_{BestSettingsOf(run_.config)};
  std::optional<StepsOfPeaks> peaks_;  // of the leg; none before its first step
  CheckpointSaver saver_{run_, tools_, base_, guards_.sound()};
  InMemorySaver copies_{run_, tools_, base_, guards_.sound()};
};

}  // namespace

absl::Status TrainRank(const TrainingRun& run, RankHandle& handle, RankReport& report) {
  SetThreads(static_cast<int>(run.settings.threads));
  const auto timeout = absl::ToChronoNanoseconds(absl::Seconds(run.settings.timeout_seconds));
  LS_ASSIGN_OR_RETURN(
      const std::unique_ptr<RankDevice> device,
      run.devices->Make(handle.comm(), {.timeout = timeout,
                                        .fp32_products = run.settings.precision.fp32_products,
                                        .product_shapes = run.settings.product_shapes(run.experts),
                                        .attention = run.settings.attention(),
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
  KeepLastLeg(LastLeg(run).settings.mesh.ranks(), reports);
  return reports;
}

LaunchOptions LaunchOptionsOf(const TrainingRun& run) {
  return {.timeout = absl::Seconds(run.settings.timeout_seconds), .post_mortem = [&run] {
            const bool is_there = run.directory != nullptr && run.directory->is_there();
            return is_there ? run.out + "/post_mortem" : "";
          }};
}

}  // namespace lockstep
