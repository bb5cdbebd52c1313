#include "core/checkpoint/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/checkpoint/draft.h"
#include "core/checkpoint/stored_checkpoint.h"
#include "core/tensor/allocator.h"

namespace lockstep {
namespace {

constexpr char kLabel[] = "checkpoint";

// The error of the first rank that has one, on all ranks.
absl::Status Agree(const absl::Status& own, Communicator& ranks) {
  constexpr int64_t kCodes = 64;  // more than there are
  CpuAllocator allocator;
  const Tensor failed = Tensor::Empty(allocator, {1}, DType::kI64, MemoryClass::kCommunication);
  int64_t& value = failed.data<int64_t>()[0];
  value = (own.ok() ? ranks.size() : ranks.rank()) * kCodes + own.raw_code();
  LS_RETURN_IF_ERROR(ranks.AllReduce(failed, failed, ReduceOp::kMin, kLabel).Wait());
  const int rank = static_cast<int>(value / kCodes);
  if (rank == ranks.size()) return absl::OkStatus();
  constexpr int64_t kLongest = 1024;
  const Tensor text = Tensor::Empty(allocator, {kLongest}, DType::kU8, MemoryClass::kCommunication);
  std::memset(text.raw(), 0, kLongest);
  std::memcpy(text.raw(), own.message().data(),
              std::min<size_t>(own.message().size(), kLongest - 1));
  LS_RETURN_IF_ERROR(ranks.Broadcast(text, rank, kLabel).Wait());
  return absl::Status(static_cast<absl::StatusCode>(value % kCodes),
                      reinterpret_cast<const char*>(text.raw()));
}

// Which shard this rank writes; those that write none count all the same.
absl::StatusOr<ShardNumber> NumberShards(const std::vector<StateTensor>& state,
                                         Communicator& ranks) {
  CpuAllocator allocator;
  const Tensor own = Tensor::Empty(allocator, {2}, DType::kI64, MemoryClass::kCommunication);
  const Tensor all =
      Tensor::Empty(allocator, {2 * ranks.size()}, DType::kI64, MemoryClass::kCommunication);
  own.data<int64_t>()[0] = std::any_of(state.begin(), state.end(), IsSaved) ? 1 : 0;
  own.data<int64_t>()[1] = absl::GetCurrentTimeNanos();
  LS_RETURN_IF_ERROR(ranks.AllGather(own, all, kLabel).Wait());
  // The time of rank 0 tells what is saved together from all else.
  ShardNumber number = {.shards = 0, .set = absl::StrCat(all.data<int64_t>()[1])};
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (rank == ranks.rank()) number.shard = number.shards;
    number.shards += all.data<int64_t>()[2 * rank];
  }
  return number;
}

}  // namespace

absl::Status SaveCheckpoint(const std::string& folder, const CheckpointInfo& info,
                            const std::vector<StateTensor>& state, const SaveOptions& options,
                            Kernels& kernels, Communicator& ranks) {
  LS_ASSIGN_OR_RETURN(const ShardNumber number, NumberShards(state, ranks));
  // Where one rank writes everything, that is whole anyway.
  const CheckpointFiles files = number.shards > 1 ? options.files : CheckpointFiles::kWhole;
  const std::string path = CheckpointPath(folder, info.step, files);
  const std::unique_ptr<Draft> draft = files == CheckpointFiles::kWhole
                                           ? MakeWholeDraft(DraftPath(path), info, state)
                                           : MakeShardedDraft(DraftPath(path), info, number);
  // One rank makes the draft, and gives it its name when all have filled it.
  const bool first = ranks.rank() == 0;
  absl::Status own;
  if (first) {
    own = MakeDirectories(folder);
    RemoveDrafts(folder);
    if (own.ok()) own = draft->Make();
  }
  absl::Status status = Agree(own, ranks);
  if (status.ok()) status = Agree(draft->Fill(state, kernels), ranks);
  if (status.ok()) status = Agree(first ? Publish(path) : absl::OkStatus(), ranks);
  if (!first) return status;
  if (!status.ok()) {
    RemoveDrafts(folder);
    return status;
  }
  return KeepNewest(folder, {.step = info.step, .path = path}, options.keep);
}

absl::StatusOr<std::optional<std::string>> NewestCheckpoint(const std::string& folder) {
  LS_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> all, ListCheckpoints(folder));
  if (all.empty()) return std::nullopt;
  return all.back().path;
}

absl::StatusOr<CheckpointInfo> ReadCheckpointInfo(const std::string& path) {
  LS_ASSIGN_OR_RETURN(const StoredCheckpoint stored, StoredCheckpoint::Open(path));
  return stored.info();
}

absl::StatusOr<CheckpointInfo> LoadCheckpoint(const std::string& path,
                                              const CheckpointOrigin& origin,
                                              const std::vector<StateTensor>& state,
                                              Kernels& kernels) {
  LS_ASSIGN_OR_RETURN(const StoredCheckpoint stored, StoredCheckpoint::Open(path));
  const CheckpointInfo& info = stored.info();
  if (info.model != origin.model) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": was written by a model of another configuration (fingerprint ", info.model,
        ", this run has ", origin.model, "). Resume with the [model] table",
        info.base.empty() && origin.base.empty() ? "" : " and the [lora] table",
        " that wrote it, or use another --out."));
  }
  if (info.base != origin.base) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": its adapters were trained on another base (hash ", info.base, ", this run has ",
        origin.base,
        "). Name the weights that it was trained on by model.init, with the same train.seed and "
        "precision.compute, or use another --out."));
  }
  LS_RETURN_IF_ERROR(stored.Check(state, StoredCheckpoint::Contents::kAll));
  LS_RETURN_IF_ERROR(stored.Read(state, kernels));
  return info;
}

}  // namespace lockstep
