#include "core/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <stop_token>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/parallel.h"
#include "core/base/status.h"
#include "core/checkpoint/between_ranks.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/checkpoint/checkpoint_list.h"
#include "core/checkpoint/removed_directory.h"
#include "core/comm/host_copy.h"
#include "core/comm/host_numbers.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr char kLabel[] = "checkpoint";

// How long a rank waits for its disk before it tells the others that it is alive: well below the
// timeout of communication.
constexpr std::chrono::milliseconds kTurn(200);

// Bytes that one thread copies at least.
constexpr int64_t kCopyGrain = int64_t{1} << 20;

void CopyTo(const Tensor& to, const Tensor& from, Store store, Kernels& kernels) {
  if (from.device().type != DeviceType::kCpu) return kernels.CopyToHost(from, to.raw());
  ParallelFor(from.bytes(), kCopyGrain, [&](int64_t begin, int64_t end) {
    std::byte* const output = to.raw() + begin;
    CopyToAll(from.raw() + begin, {&output, 1}, end - begin, store);
  });
}

// The steps up to which the newest check vouches for what was saved. A checkpoint of the checked
// state itself may have been damaged behind the check, as the next step finds out.
std::optional<int64_t> VouchedFor(const CheckpointInfo& info) {
  if (!info.checked_steps) return std::nullopt;
  return std::min(*info.checked_steps, info.step - 1);
}

// Makes the folder of checkpoints, but not the run's directory around it: one that somebody has
// removed is not made again.
absl::Status MakeFolder(const std::string& folder) {
  const std::string around = folder.substr(0, folder.rfind('/'));
  if (around.empty() || around.size() == folder.size() || !IsGone(around)) {
    return MakeDirectories(folder);
  }
  return DirectoryWasRemoved(around);
}

}  // namespace

std::vector<StateTensor> AllocateCopy(const std::vector<StateTensor>& state, Allocator& allocator) {
  std::vector<StateTensor> copy = state;
  for (size_t i = 0; i < state.size(); ++i) {
    const Tensor& whole = state[i].tensor;
    copy[i].tensor = Tensor::Empty(allocator, IsSaved(state[i]) ? whole.shape() : Shape({0}),
                                   whole.dtype(), MemoryClass::kCheckpoint);
  }
  return copy;
}

CheckpointWriter::CheckpointWriter(std::string folder, SaveOptions options, Kernels& kernels,
                                   Communicator& ranks)
    : folder_(std::move(folder)), options_(std::move(options)), kernels_(kernels), ranks_(ranks) {}

CheckpointWriter::~CheckpointWriter() { GiveUp(); }

void CheckpointWriter::GiveUp() {
  if (writing_) End(absl::CancelledError("the run has ended")).IgnoreError();
}

void CheckpointWriter::Reserve(const std::vector<StateTensor>& state, Allocator& host) {
  copy_ = AllocateCopy(state, host);
  for (const StateTensor& part : copy_) {
    if (part.tensor.bytes() > 0) std::memset(part.tensor.raw(), 0, part.tensor.bytes());
  }
}

absl::Status CheckpointWriter::MakeDraft(const CheckpointInfo& info,
                                         const std::vector<StateTensor>& state) {
  LS_ASSIGN_OR_RETURN(const ShardNumber number, NumberShards(state, ranks_));
  // Where one rank writes everything, that is whole anyway.
  const CheckpointFiles files = number.shards > 1 ? options_.files : CheckpointFiles::kWhole;
  const std::string path = CheckpointPath(folder_, info.step, files);
  std::unique_ptr<Draft> draft = files == CheckpointFiles::kWhole
                                     ? MakeWholeDraft(DraftPath(path), info, state)
                                     : MakeShardedDraft(DraftPath(path), info, number);
  // One rank makes the draft, and gives it its name when all have filled it.
  absl::Status own;
  if (is_first()) {
    own = MakeFolder(folder_);
    RemoveDrafts(folder_);
    if (own.ok()) own = draft->Make();
  }
  writing_.emplace(
      Writing{.info = info, .path = path, .draft = std::move(draft), .begun_nanos = NowNanos()});
  const absl::Status made = AgreeOnError(own, ranks_);
  return made.ok() ? made : End(made);
}

absl::Status CheckpointWriter::Begin(const CheckpointInfo& info,
                                     const std::vector<StateTensor>& state) {
  CHECK_EQ(copy_.size(), state.size()) << "no memory was reserved for this state";
  LS_RETURN_IF_ERROR(Finish());
  const int64_t begun = NowNanos();
  LS_RETURN_IF_ERROR(MakeDraft(info, state));
  costs_.bytes = SavedBytes(state);
  // All tensors together are one copy, though each may be too small for memcpy to stream it.
  const Store store = costs_.bytes >= kStreamingBytes ? Store::kStreaming : Store::kCached;
  for (size_t i = 0; i < state.size(); ++i) {
    if (!IsSaved(state[i])) continue;
    CHECK_EQ(copy_[i].tensor.bytes(), state[i].tensor.bytes()) << state[i].name;
    CopyTo(copy_[i].tensor, state[i].tensor, store, kernels_);
  }
  writing_->task = std::make_unique<BackgroundTask>(
      [this, draft = writing_->draft.get()](const std::stop_token& stop) {
        return draft->Fill(copy_, kernels_, stop);
      });
  costs_.held_nanos += NowNanos() - begun;
  return absl::OkStatus();
}

absl::Status CheckpointWriter::Advance() { return Advance(std::chrono::nanoseconds(0)); }

absl::Status CheckpointWriter::Finish() {
  const int64_t begun = NowNanos();
  const absl::Status status = AdvanceToTheEnd();
  costs_.waited_nanos += NowNanos() - begun;
  return status;
}

absl::Status CheckpointWriter::AdvanceToTheEnd() {
  absl::Status status;
  while (writing_ && status.ok()) status = Advance(kTurn);
  return status;
}

absl::Status CheckpointWriter::Advance(std::chrono::nanoseconds limit) {
  if (!writing_) return absl::OkStatus();
  const bool is_own_done = writing_->task == nullptr || writing_->task->WaitFor(limit);
  int64_t are_done = is_own_done ? 1 : 0;
  LS_RETURN_IF_ERROR(
      AllReduceNumbers(ranks_, absl::MakeSpan(&are_done, 1), ReduceOp::kMin, kLabel));
  if (are_done == 0) return absl::OkStatus();
  const absl::Status own = writing_->task == nullptr ? absl::OkStatus() : writing_->task->Result();
  writing_->task = nullptr;
  absl::Status status = AgreeOnError(own, ranks_);
  if (!status.ok() || writing_->is_filled) return End(status);
  status = writing_->draft->Combine(ranks_);
  if (!status.ok()) return End(status);
  writing_->is_filled = true;
  if (is_first()) {
    writing_->task = std::make_unique<BackgroundTask>(
        [this](const std::stop_token&) { return Publish(); }, writing_->priority);
  }
  return absl::OkStatus();
}

absl::Status CheckpointWriter::Save(const CheckpointInfo& info,
                                    const std::vector<StateTensor>& state) {
  LS_RETURN_IF_ERROR(Finish());
  LS_RETURN_IF_ERROR(MakeDraft(info, state));
  writing_->priority = BackgroundTask::Priority::kOfStarter;
  writing_->task = std::make_unique<BackgroundTask>(
      // Where ranks are lost meanwhile, the caller and its list may be gone first.
      [this, state, draft = writing_->draft.get()](const std::stop_token& stop) {
        return draft->Fill(state, kernels_, stop);
      },
      writing_->priority);
  return AdvanceToTheEnd();
}

absl::Status CheckpointWriter::Publish() {
  const Writing& writing = *writing_;
  LS_RETURN_IF_ERROR(writing.draft->Complete());
  LS_RETURN_IF_ERROR(options_.sync(writing.info.step));
  LS_RETURN_IF_ERROR(lockstep::Publish(writing.path));
  LS_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> all, CheckpointsByStep(folder_));
  KeepNewest(all, {.step = writing.info.step, .path = writing.path}, options_.keep,
             options_.keeps_checked ? VouchedFor(writing.info) : std::nullopt);
  return absl::OkStatus();
}

absl::Status CheckpointWriter::End(const absl::Status& status) {
  writing_->task = nullptr;  // waits
  const bool was_beside_training = writing_->priority == BackgroundTask::Priority::kLow;
  if (status.ok() && writing_->is_filled && was_beside_training) {
    costs_.checkpoints += 1;
    costs_.written_nanos += NowNanos() - writing_->begun_nanos;
  }
  writing_ = std::nullopt;
  if (!status.ok() && is_first()) RemoveDrafts(folder_);
  return status;
}

}  // namespace lockstep
