#include "core/checkpoint/checkpoint.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint_list.h"
#include "core/checkpoint/stored_checkpoint.h"

namespace lockstep {
namespace {

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
    return found == keys.end() ? "not given" : found->second;
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
  return CheckpointWriter(folder, options, kernels, ranks).Save(info, state);
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
  LS_ASSIGN_OR_RETURN(const StoredCheckpoint stored, StoredCheckpoint::Open(path));
  LS_RETURN_IF_ERROR(CheckOrigin(path, stored.info(), origin));
  LS_RETURN_IF_ERROR(Load(stored, state, kernels));
  return stored.info();
}

}  // namespace lockstep
