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
#include "core/checkpoint/safetensors.h"
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

// The step that a checkpoint states, in its first file.
absl::StatusOr<int64_t> StepOf(const std::string& path) {
  std::string file = path;
  if (IsDirectory(path)) {
    LS_ASSIGN_OR_RETURN(const std::vector<std::string> shards, ListShards(path));
    file = shards[0];
  }
  LS_ASSIGN_OR_RETURN(const SafetensorsReader reader, SafetensorsReader::Open(file));
  LS_ASSIGN_OR_RETURN(const CheckpointMetadata metadata,
                      ParseCheckpointMetadata(reader.metadata(), file));
  return metadata.info.step;
}

// The checkpoints of a folder, oldest first, by the steps that they state themselves. One that
// cannot be read keeps the step of its name: whoever loads it hears what is wrong.
absl::StatusOr<std::vector<FoundCheckpoint>> CheckpointsByStep(const std::string& folder) {
  LS_ASSIGN_OR_RETURN(std::vector<FoundCheckpoint> all, ListCheckpoints(folder));
  for (FoundCheckpoint& found : all) {
    const absl::StatusOr<int64_t> step = StepOf(found.path);
    if (step.ok()) found.step = *step;
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.step < b.step; });
  return all;
}

// Whether a key, or a table that it lies in, is among those that may differ.
bool MayDiffer(const std::string& key, const std::vector<std::string>& allowed) {
  return std::any_of(allowed.begin(), allowed.end(), [&key](const std::string& each) {
    return key == each || key.starts_with(each + ".");
  });
}

absl::Status CheckOrigin(const std::string& path, const CheckpointInfo& info,
                         const CheckpointOrigin& origin) {
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
  std::string differences;
  std::map<std::string, std::string> all = info.keys;
  all.insert(origin.keys.begin(), origin.keys.end());
  const auto value = [](const std::map<std::string, std::string>& keys, const std::string& key) {
    const auto found = keys.find(key);
    return found == keys.end() ? "not there" : found->second;
  };
  for (const auto& [key, ignored] : all) {
    const std::string before = value(info.keys, key), now = value(origin.keys, key);
    if (before == now || MayDiffer(key, origin.allowed_changes)) continue;
    absl::StrAppend(&differences, "\n  ", key, " is ", now, ", but was ", before,
                    "; keep it, or give --allow_change ", key);
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      path, ": was written by a run that would go on with another curve:", differences));
}

absl::Status Load(const StoredCheckpoint& stored, const std::vector<StateTensor>& state,
                  Kernels& kernels) {
  LS_RETURN_IF_ERROR(stored.Check(state, StoredCheckpoint::Contents::kAll));
  return stored.Read(state, kernels);
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
  if (status.ok()) status = Agree(draft->Finish(ranks), ranks);
  if (status.ok()) status = Agree(first ? Publish(path) : absl::OkStatus(), ranks);
  if (!first) return status;
  if (!status.ok()) {
    RemoveDrafts(folder);
    return status;
  }
  LS_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> all, CheckpointsByStep(folder));
  KeepNewest(all, {.step = info.step, .path = path}, options.keep);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::string>> NewestCheckpoint(const std::string& folder) {
  LS_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> all, CheckpointsByStep(folder));
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
  const auto advised = [](const absl::Status& error) {
    if (absl::IsFailedPrecondition(error)) return error;
    return absl::Status(
        error.code(), absl::StrCat(error.message(),
                                   ". Remove this checkpoint to resume from the one before it, if "
                                   "there is one"));
  };
  const absl::StatusOr<StoredCheckpoint> stored = StoredCheckpoint::Open(path);
  if (!stored.ok()) return advised(stored.status());
  LS_RETURN_IF_ERROR(CheckOrigin(path, stored->info(), origin));
  const absl::Status loaded = Load(*stored, state, kernels);
  if (!loaded.ok()) return advised(loaded);
  return stored->info();
}

}  // namespace lockstep
