#include "core/run/saving/checkpoint_saver.h"

#include "absl/types/span.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/comm/agree.h"
#include "core/comm/host_numbers.h"
#include "core/run/directory/run_identity.h"
#include "core/run/strategy/model_weights.h"

namespace lockstep {

std::string BestFolder(const RunDescription& run) { return run.out + "/best"; }

CheckpointInfo CheckpointInfoOf(const TrainingRun& run, const std::string& strategy,
                                const std::string& base, const SoundState& sound, int64_t steps) {
  return {.step = steps,
          .model = run.model_fingerprint,
          .strategy = strategy,
          .base = base,
          .keys = KeysOfCurve(run.keys),
          .checked_steps = sound.checked_steps()};
}

void RemoveBestBehind(const RunDescription& run, int64_t steps) {
  const auto found = ListCheckpoints(BestFolder(run));
  if (!found.ok()) return;  // whoever saves the next one will say so
  for (const FoundCheckpoint& checkpoint : *found) {
    if (checkpoint.step > steps) RemoveTree(checkpoint.path);
  }
  RemoveDrafts(BestFolder(run));
}

void CheckpointSaver::Enter(RankInLeg& here) {
  here_ = &here;
  const CheckpointSettings& checkpoint = run_.settings.checkpoint;
  writer_.emplace(run_.checkpoints(),
                  SaveOptions{.files = checkpoint.files,
                              .keep = checkpoint.keep,
                              .keeps_checked = true,
                              .sync = Sync()},
                  tools_.kernels, here.ranks());
  if (!run_.settings.copies_state()) return;
  Allocator& allocator = here.rank().allocator();
  writer_->Reserve(State(), allocator.device().type == DeviceType::kCpu ? allocator : host_);
}

absl::Status CheckpointSaver::Leave(int64_t steps) {
  LS_RETURN_IF_ERROR(Finish(steps));
  earlier_ = costs();
  reported_ = {};
  writer_.reset();
  here_ = nullptr;
  return absl::OkStatus();
}

absl::Status CheckpointSaver::Advance(int64_t step) { return Told(step + 1, writer_->Advance()); }

absl::Status CheckpointSaver::Save(int64_t steps) {
  if (!IsWanted(steps)) return absl::OkStatus();
  if (!writer_->has_reserved()) return SaveAndWait(steps);
  LS_RETURN_IF_ERROR(Finish(steps));
  saved_steps_ = steps;
  return Told(steps, writer_->Begin(InfoOf(steps), State()));
}

absl::Status CheckpointSaver::SaveAndWait(int64_t steps) {
  LS_RETURN_IF_ERROR(Finish(steps));
  if (!IsWanted(steps)) return absl::OkStatus();
  saved_steps_ = steps;
  return Told(steps, writer_->Save(InfoOf(steps), State()));
}

absl::Status CheckpointSaver::SaveBest(int64_t steps) {
  return Judged(SaveCheckpoint(BestFolder(run_), InfoOf(steps), State(),
                               {.files = run_.settings.checkpoint.files, .keep = 1, .sync = Sync()},
                               tools_.kernels, here_->ranks()));
}

absl::Status CheckpointSaver::Finish(int64_t steps) { return Told(steps, writer_->Finish()); }

void CheckpointSaver::EndWriting() {
  if (!writer_) return;
  // Where ranks no longer hear each other, the thread that gives the name is waited for alone.
  if (!writer_->Finish().ok()) writer_->GiveUp();
}

absl::Status CheckpointSaver::Share() {
  return AllReduceNumbers(tools_.world, absl::MakeSpan(&saved_steps_, 1), ReduceOp::kMax,
                          "checkpoints before");
}

CheckpointCosts CheckpointSaver::costs() const {
  return writer_ ? earlier_ + writer_->costs() : earlier_;
}

CheckpointInfo CheckpointSaver::InfoOf(int64_t steps) const {
  return CheckpointInfoOf(run_, here_->leg().strategy_name, base_, sound_, steps);
}

std::vector<StateTensor> CheckpointSaver::State() const {
  return TrainedState(here_->strategy().State());
}

bool CheckpointSaver::IsWanted(int64_t steps) const {
  return run_.settings.checkpoint.keep > 0 && steps != saved_steps_;
}

absl::Status CheckpointSaver::Told(int64_t steps, const absl::Status& status) {
  const CheckpointCosts costs = writer_->costs() - reported_;
  if (costs.checkpoints > 0) {
    reported_ = writer_->costs();
    if (reporter_ != nullptr) {
      LS_RETURN_IF_ERROR(reporter_->Checkpoint(steps - 1, saved_steps_, costs));
    }
  }
  return Judged(status);
}

std::function<absl::Status(int64_t steps)> CheckpointSaver::Sync() const {
  return [this](int64_t steps) {
    return reporter_ == nullptr ? absl::OkStatus() : reporter_->Sync(steps);
  };
}

absl::Status CheckpointSaver::Judged(const absl::Status& status) {
  if (absl::IsOutOfRange(status) && run_.settings.on_nan == OnNan::kContinue) {
    if (reporter_ != nullptr) reporter_->Note(std::string(status.message()));
    return absl::OkStatus();
  }
  // All ranks have the same status: one tells.
  return status.ok() ? status : AgreeOnFirst(status, here_->ranks());
}

}  // namespace lockstep
