#include "core/checkpoint/weights.h"

#include <algorithm>
#include <iterator>  // std::back_inserter
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/checkpoint_metadata.h"
#include "core/checkpoint/published_weights.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/stored_checkpoint.h"

namespace lockstep {
namespace {

enum class Kind { kCheckpoint, kPublished };

// What `path` stands for: of a run's directory the newest checkpoint.
absl::StatusOr<std::string> FileOf(const std::string& path) {
  const std::string folder = path + "/checkpoints";
  if (!IsDirectory(folder)) return path;
  LS_ASSIGN_OR_RETURN(const std::optional<std::string> newest, NewestCheckpoint(folder));
  if (newest) return *newest;
  return absl::NotFoundError(absl::StrCat(folder, ": holds no checkpoint to start from"));
}

absl::Status NoKnownNames(const std::string& path) {
  return absl::FailedPreconditionError(
      absl::StrCat("\"", path,
                   "\" is no checkpoint of a training run, and no other files are known for this "
                   "kind of model"));
}

absl::StatusOr<Kind> KindOf(const std::string& path, const PublishedNames& names) {
  const bool is_folder = PublishedWeights::IsFolder(path);
  if (IsDirectory(path) && !is_folder) return Kind::kCheckpoint;
  if (is_folder || path.ends_with(".json")) {
    if (!names.tensors.empty()) return Kind::kPublished;
    return NoKnownNames(path);
  }
  LS_ASSIGN_OR_RETURN(const SafetensorsReader reader, SafetensorsReader::Open(path));
  if (IsOfCheckpoint(reader.metadata())) return Kind::kCheckpoint;
  if (!names.tensors.empty()) return Kind::kPublished;
  return NoKnownNames(path);
}

std::vector<StateTensor> Weights(const std::vector<StateTensor>& state) {
  std::vector<StateTensor> weights;
  std::copy_if(state.begin(), state.end(), std::back_inserter(weights),
               [](const StateTensor& tensor) { return !IsOptimizerState(tensor.name); });
  return weights;
}

}  // namespace

absl::Status CheckWeights(const std::string& named, const PublishedNames& names,
                          const std::vector<StateTensor>& state) {
  LS_ASSIGN_OR_RETURN(const std::string path, FileOf(named));
  LS_ASSIGN_OR_RETURN(const Kind kind, KindOf(path, names));
  if (kind == Kind::kPublished) {
    LS_ASSIGN_OR_RETURN(const PublishedWeights file, PublishedWeights::Open(path, names));
    return file.Check(Weights(state));
  }
  LS_ASSIGN_OR_RETURN(const StoredCheckpoint stored, StoredCheckpoint::Open(path));
  return stored.Check(Weights(state), StoredCheckpoint::Contents::kWeights);
}

absl::Status LoadWeights(const std::string& named, const PublishedNames& names,
                         const std::vector<StateTensor>& state, Kernels& kernels) {
  LS_ASSIGN_OR_RETURN(const std::string path, FileOf(named));
  LS_ASSIGN_OR_RETURN(const Kind kind, KindOf(path, names));
  const std::vector<StateTensor> weights = Weights(state);
  if (kind == Kind::kPublished) {
    LS_ASSIGN_OR_RETURN(const PublishedWeights file, PublishedWeights::Open(path, names));
    LS_RETURN_IF_ERROR(file.Check(weights));
    return file.Read(weights, kernels);
  }
  LS_ASSIGN_OR_RETURN(const StoredCheckpoint stored, StoredCheckpoint::Open(path));
  LS_RETURN_IF_ERROR(stored.Check(weights, StoredCheckpoint::Contents::kWeights));
  return stored.Read(weights, kernels);
}

absl::StatusOr<std::optional<CheckpointInfo>> ReadInfoOfWeights(const std::string& named,
                                                                const PublishedNames& names) {
  LS_ASSIGN_OR_RETURN(const std::string path, FileOf(named));
  LS_ASSIGN_OR_RETURN(const Kind kind, KindOf(path, names));
  if (kind == Kind::kPublished) return std::nullopt;
  LS_ASSIGN_OR_RETURN(CheckpointInfo info, ReadCheckpointInfo(path));
  return info;
}

}  // namespace lockstep
