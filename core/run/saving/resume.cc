#include "core/run/saving/resume.h"

#include <cstdio>
#include <iterator>  // std::next

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/checkpoint/checkpoint_list.h"
#include "core/checkpoint/in_memory.h"
#include "core/checkpoint/stored_checkpoint.h"
#include "core/comm/agree.h"
#include "core/comm/host_numbers.h"
#include "core/report/metrics.h"
#include "core/report/reporter.h"
#include "core/report/row_file.h"
#include "core/run/directory/run_identity.h"
#include "core/run/strategy/model_weights.h"

namespace lockstep {
namespace {

// Damage by which no rank is lost: starting ranks again would find it again.
absl::Status ForSomebodyToMend(const absl::Status& damage) {
  return damage.ok() ? damage : absl::FailedPreconditionError(damage.message());
}

absl::StatusOr<CheckpointInfo> LoadFrom(const std::string& path, const TrainingRun& run,
                                        RankInLeg& here, const std::string& base,
                                        Kernels& kernels) {
  absl::StatusOr<CheckpointInfo> info = LoadCheckpoint(
      path, CheckpointOriginOf(run, base), TrainedState(here.strategy().State()), kernels);
  if (run.settings.checkpoint.on_damage == OnDamage::kGoBack || !IsDamage(info.status()) ||
      IsInMemory(path)) {
    return info;
  }
  return ForSomebodyToMend(
      Annotate(info.status(),
               "the run stops here, as checkpoint.on_damage is \"stop\"; with \"go_back\" it "
               "goes on from the newest checkpoint that is sound"));
}

// Whether a checkpoint is passed over, given what this rank found in it: where it is damaged. One
// in memory comes on top of those on the disk.
bool IsPassedOver(const std::string& path, const absl::Status& found, const TrainingRun& run) {
  const bool goes_back = IsInMemory(path) || run.settings.checkpoint.on_damage == OnDamage::kGoBack;
  return goes_back && IsDamage(found);
}

// The first rank that passes a checkpoint over, as all ranks then do; the number of ranks: none.
absl::StatusOr<int> FirstToPass(bool is_passed_over, Communicator& ranks) {
  int64_t first = is_passed_over ? ranks.rank() : ranks.size();
  LS_RETURN_IF_ERROR(
      AllReduceNumbers(ranks, absl::MakeSpan(&first, 1), ReduceOp::kMin, "damaged checkpoint"));
  return static_cast<int>(first);
}

// Whether the run can go on behind a sound checkpoint.
absl::Status CheckGoesOn(const std::string& path, int64_t steps, const TrainingRun& run, int rank) {
  if (steps > run.settings.steps) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": has ", steps, " steps behind it, but train.steps is ",
                     run.settings.steps, "; raise train.steps to go on"));
  }
  if (steps == run.settings.steps && PathExists(run.out + "/summary.json")) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": has all ", steps,
                     " steps behind it, and the run its summary: "
                     "nothing is left to do; raise train.steps to go on"));
  }
  return rank == 0 ? Reporter::Check(run, steps) : absl::OkStatus();
}

}  // namespace

absl::Status CheckHasRows(const TrainingRun& run, int64_t steps) {
  const absl::Status rows =
      RowFile::Check(run.out + "/losses.csv", kLossesCsv, steps, EarlierRows::kEveryStep);
  // Resume judges other errors.
  return absl::IsFailedPrecondition(rows) ? absl::DataLossError(rows.message()) : absl::OkStatus();
}

CheckpointOrigin CheckpointOriginOf(const TrainingRun& run, const std::string& base) {
  return {.model = run.model_fingerprint,
          .base = base,
          .keys = KeysOfCurve(run.keys),
          .allowed_changes = run.allowed_changes};
}

const TrainingRun& FirstLegOf(const TrainingRun& run) {
  if (!run.resume || run.next == nullptr) return run;
  const auto found = RunCheckpointsByStep(run.out);
  if (!found.ok() || found->empty()) return run;
  const absl::StatusOr<CheckpointInfo> info = ReadCheckpointInfo(found->back().path);
  return info.ok() ? LegAt(run, info->step) : run;
}

absl::StatusOr<Resumed> Resume(const TrainingRun& run, RankInLeg& here, const std::string& base,
                               Kernels& kernels) {
  Communicator& ranks = here.ranks();
  const absl::StatusOr<std::vector<FoundCheckpoint>> found = RunCheckpointsByStep(run.out);
  LS_RETURN_IF_ERROR(AgreeOnFirst(found.ok() ? absl::OkStatus() : found.status(), ranks));
  absl::Status newest_damage;  // of the newest checkpoint, on the rank that speaks of it
  Resumed resumed;
  for (auto newest = found->rbegin(); newest != found->rend(); ++newest) {
    const absl::StatusOr<CheckpointInfo> info = LoadFrom(newest->path, run, here, base, kernels);
    absl::Status here_found = info.status();
    if (here_found.ok() && IsInMemory(newest->path) && ranks.rank() == 0) {
      here_found = Annotate(CheckHasRows(run, info->step), newest->path);
    }
    LS_ASSIGN_OR_RETURN(const int finder,
                        FirstToPass(IsPassedOver(newest->path, here_found, run), ranks));
    if (finder < ranks.size()) {
      const bool has_older = std::next(newest) != found->rend();  // else the error below tells
      if (finder == ranks.rank() && has_older) {
        std::fprintf(stderr, "--resume passes a %s over: %s\n",
                     IsInMemory(newest->path) ? "copy in memory" : "damaged checkpoint",
                     std::string(here_found.message()).c_str());
      }
      if (newest == found->rbegin() && finder == ranks.rank()) newest_damage = here_found;
      (IsInMemory(newest->path) ? resumed.passed_copies : resumed.damaged).push_back(newest->path);
      continue;
    }
    LS_RETURN_IF_ERROR(AgreeOnFirst(info.status(), ranks));
    LS_RETURN_IF_ERROR(
        AgreeOnFirst(CheckGoesOn(newest->path, info->step, run, ranks.rank()), ranks));
    if (info->step > 0) here.strategy().Restored();
    resumed.steps = info->step;
    resumed.checked_steps = info->checked_steps.value_or(info->step);
    resumed.path = newest->path;
    return resumed;
  }
  LS_RETURN_IF_ERROR(AgreeOnFirst(
      ForSomebodyToMend(
          Annotate(newest_damage,
                   "no checkpoint is sound; without --resume the run starts again; the newest")),
      ranks));
  return AgreeOnFirst(absl::NotFoundError(absl::StrCat(
                          run.checkpoints(),
                          ": holds no checkpoint that this rank can see, and no copy in memory can "
                          "be put together; all ranks must see the run directory. To begin again "
                          "with the first step, move ",
                          run.out, " away")),
                      ranks);
}

absl::Status SetAsideSuspects(const TrainingRun& run, const SoundState::Suspects& suspects,
                              int rank) {
  const auto found = RunCheckpointsByStep(run.out);
  if (!found.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("what may have wrong bits cannot be listed (", found.status().message(),
                     "); before the run goes on, rename its checkpoints of more than ",
                     suspects.sound_steps, " steps"));
  }
  std::vector<int64_t> aside;
  std::vector<std::string> left;
  for (const FoundCheckpoint& checkpoint : *found) {
    if (checkpoint.step <= suspects.sound_steps) continue;
    if (IsInMemory(checkpoint.path)) {
      if (suspects.are_copies_sound || !run.machines.IsFirst(rank)) continue;
      RemoveTree(checkpoint.path);
      if (!IsGone(checkpoint.path)) left.push_back(checkpoint.path);
    } else if (rank == 0) {
      const absl::Status done = SetAsideSuspect(checkpoint.path).status();
      if (done.ok()) aside.push_back(checkpoint.step);
      if (!done.ok()) left.push_back(absl::StrCat(checkpoint.path, " (", done.message(), ")"));
    }
  }
  if (!aside.empty()) {
    std::fprintf(stderr,
                 "wrong bits may be in the checkpoints of %s steps: they are now %s/*.suspect\n",
                 absl::StrJoin(aside, ", ").c_str(), run.checkpoints().c_str());
  }
  if (left.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "what may have wrong bits cannot be set aside; rename it before the run goes on: ",
      absl::StrJoin(left, ", ")));
}

absl::Status SetAside(const std::vector<std::string>& damaged) {
  for (const std::string& path : damaged) {
    LS_ASSIGN_OR_RETURN(const std::string aside, SetAsideDamaged(path));
    std::fprintf(stderr, "the damaged checkpoint is now %s\n", aside.c_str());
  }
  return absl::OkStatus();
}

}  // namespace lockstep
