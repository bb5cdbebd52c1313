#include "core/run/saving/in_memory_saver.h"

#include <cstddef>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/draft.h"  // IsSaved, SavedBytes
#include "core/checkpoint/in_memory.h"
#include "core/comm/agree.h"
#include "core/comm/host_numbers.h"
#include "core/run/saving/checkpoint_saver.h"
#include "core/run/saving/resume.h"
#include "core/run/strategy/model_weights.h"

namespace lockstep {
namespace {

// Whether a tensor, which may be on a device, has the bits of one in host memory.
bool SameBits(const Tensor& tensor, const Tensor& host, Kernels& kernels) {
  std::vector<std::byte> copy;
  const std::byte* bytes = tensor.raw();
  if (tensor.device().type != DeviceType::kCpu) {
    copy.resize(static_cast<size_t>(tensor.bytes()));
    kernels.CopyToHost(tensor, copy.data());
    bytes = copy.data();
  }
  return std::memcmp(bytes, host.raw(), static_cast<size_t>(tensor.bytes())) == 0;
}

}  // namespace

absl::Status InMemorySaver::Enter(RankInLeg& here) {
  if (settings_.every == 0) return absl::OkStatus();
  here_ = &here;
  LS_RETURN_IF_ERROR(MakeFolder(here, SavedBytes(TrainedState(here.strategy().State()))));
  const std::string folder = InMemoryFolder(run_.out);
  if (run_.machines.are_several()) {
    spread_.emplace(folder, machines_, tools_.kernels, here.ranks());
  } else {
    writer_.emplace(folder, SaveOptions{.keep = 1}, tools_.kernels, here.ranks());
  }
  return absl::OkStatus();
}

// On each machine of the leg, with room for what it will hold.
absl::Status InMemorySaver::MakeFolder(RankInLeg& here, int64_t own_bytes) {
  Communicator& ranks = here.ranks();
  int64_t bytes = own_bytes;
  if (run_.machines.are_several()) {
    machines_ = run_.machines.Among(ranks.members());
    LS_ASSIGN_OR_RETURN(bytes, BytesOfMachine(own_bytes, machines_, ranks));
  } else {
    LS_RETURN_IF_ERROR(
        AllReduceNumbers(ranks, absl::MakeSpan(&bytes, 1), ReduceOp::kSum, "state in memory"));
  }
  const bool is_first = machines_.IsFirst(ranks.rank());
  LS_RETURN_IF_ERROR(
      AgreeOnFirst(is_first ? MakeRoomForCopies(run_.out, bytes) : absl::OkStatus(), ranks));
  if (reporter_ != nullptr) {
    reporter_->Note(absl::StrCat("checkpoint.in_memory_every: copies of the state take up to ",
                                 FormatBytes(kMostInMemoryCopies * bytes),
                                 " of this machine's memory"));
  }
  return absl::OkStatus();
}

void InMemorySaver::Leave() {
  writer_.reset();
  spread_.reset();
  here_ = nullptr;
  copied_steps_ = -1;
}

bool InMemorySaver::IsDue(int64_t steps) const {
  return here_ != nullptr && settings_.every > 0 && steps % settings_.every == 0;
}

absl::Status InMemorySaver::AfterSteps(int64_t steps) {
  if (!IsDue(steps)) return absl::OkStatus();
  const int64_t start = NowNanos();
  // The copy outlives the machine that writes the rows, and nobody goes on from it without them.
  if (spread_) {
    LS_RETURN_IF_ERROR(AgreeOnFirst(reporter_ == nullptr ? absl::OkStatus() : reporter_->SyncRows(),
                                    here_->ranks()));
  }
  const std::vector<StateTensor> state = TrainedState(here_->strategy().State());
  const CheckpointInfo info =
      CheckpointInfoOf(run_, here_->leg().strategy_name, base_, sound_, steps);
  const absl::Status saved = spread_ ? spread_->Save(info, state) : writer_->Save(info, state);
  if (absl::IsOutOfRange(saved)) return absl::OkStatus();  // LossWatch judges what is not finite
  LS_RETURN_IF_ERROR(saved.ok() ? saved : AgreeOnFirst(saved, here_->ranks()));
  copied_steps_ = steps;
  if (reporter_ == nullptr) return absl::OkStatus();
  LS_ASSIGN_OR_RETURN(const int64_t bytes, BytesHere());
  return reporter_->Copy(steps, SecondsSince(start), bytes);
}

// What the newest copy takes on this machine.
absl::StatusOr<int64_t> InMemorySaver::BytesHere() const {
  LS_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> copies,
                      ListCheckpoints(InMemoryFolder(run_.out)));
  if (copies.empty()) {
    return absl::DataLossError(
        absl::StrCat(InMemoryFolder(run_.out), ": the copy of the state has been removed"));
  }
  return CheckpointBytes(copies.back().path);
}

absl::Status InMemorySaver::Compare(int64_t steps) {
  if (run_.settings.guard.every == 0 || copied_steps_ != steps) return absl::OkStatus();
  copied_steps_ = -1;
  std::vector<StateTensor> state = TrainedState(here_->strategy().State());
  // This machine may have nothing of other ranks' parts.
  if (spread_) std::erase_if(state, [](const StateTensor& part) { return !IsSaved(part); });
  // A copy that is damaged says nothing against checkpoints. Where the state is no longer what its
  // copy holds, a checkpoint that was made behind the copy may have what has changed.
  const absl::StatusOr<std::vector<StateTensor>> copy = Read(state, steps);
  LS_RETURN_IF_ERROR(AgreeOnFirst(copy.status(), here_->ranks()));
  return sound_.Agree(HoldTo(*copy, state, steps), SoundState::BehindCopy(steps), here_->ranks());
}

absl::StatusOr<std::vector<StateTensor>> InMemorySaver::Read(const std::vector<StateTensor>& state,
                                                             int64_t steps) const {
  std::vector<StateTensor> copy = state;
  for (StateTensor& part : copy) {
    part.tensor =
        Tensor::Empty(host_, part.tensor.shape(), part.tensor.dtype(), MemoryClass::kCheckpoint);
  }
  LS_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> copies,
                      ListCheckpoints(InMemoryFolder(run_.out)));
  if (copies.empty()) return std::vector<StateTensor>();  // somebody has removed it
  const absl::Status read =
      spread_ ? spread_->ReadOwn(copy)
              : LoadCheckpoint(copies.back().path, CheckpointOriginOf(run_, base_), copy,
                               tools_.kernels)
                    .status();
  LS_RETURN_IF_ERROR(
      Annotate(read, absl::StrCat("step ", steps, ": wrong bits: the copy in memory, read on rank ",
                                  here_->rank().rank)));
  return copy;
}

absl::Status InMemorySaver::HoldTo(const std::vector<StateTensor>& copy,
                                   const std::vector<StateTensor>& state, int64_t steps) const {
  for (size_t i = 0; i < copy.size(); ++i) {
    if (SameBits(state[i].tensor, copy[i].tensor, tools_.kernels)) continue;
    return absl::DataLossError(absl::StrCat(
        "step ", steps, ": wrong bits: '", state[i].name, "' on rank ", here_->rank().rank,
        " is not what its copy in memory holds, whose checksums are right. The run stops before it "
        "saves anything more: test the memory and the processor of that rank's machine, and "
        "--resume, elsewhere if they fail"));
  }
  return absl::OkStatus();
}

}  // namespace lockstep
