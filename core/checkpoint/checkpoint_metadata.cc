#include "core/checkpoint/checkpoint_metadata.h"

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

constexpr char kFormat[] = "format";
// Version 1 had no checksums, version 2 of shards no manifest.
constexpr char kWholeFormat[] = "lockstep checkpoint 2";
constexpr char kShardFormat[] = "lockstep checkpoint shard 3";
constexpr char kAnyVersion[] = "lockstep checkpoint ";
constexpr char kKeyPrefix[] = "key ";
constexpr char kStep[] = "step";
constexpr char kModel[] = "model";
constexpr char kStrategy[] = "strategy";
constexpr char kBase[] = "base";
constexpr char kChecked[] = "checked steps";
constexpr char kShard[] = "shard";
constexpr char kShards[] = "shards";
constexpr char kSet[] = "set";

}  // namespace

std::map<std::string, std::string> FormatCheckpointMetadata(const CheckpointMetadata& metadata) {
  std::map<std::string, std::string> text = {{kFormat, kWholeFormat},
                                             {kStep, absl::StrCat(metadata.info.step)},
                                             {kModel, metadata.info.model},
                                             {kStrategy, metadata.info.strategy}};
  if (!metadata.info.base.empty()) text[kBase] = metadata.info.base;
  if (metadata.info.checked_steps) text[kChecked] = absl::StrCat(*metadata.info.checked_steps);
  for (const auto& [key, value] : metadata.info.keys) text[kKeyPrefix + key] = value;
  if (metadata.shard) {
    text[kFormat] = kShardFormat;
    text[kShard] = absl::StrCat(metadata.shard->shard + 1);
    text[kShards] = absl::StrCat(metadata.shard->shards);
    text[kSet] = metadata.shard->set;
  }
  return text;
}

bool IsOfCheckpoint(const std::map<std::string, std::string>& metadata) {
  const auto format = metadata.find(kFormat);
  return format != metadata.end() && format->second.starts_with(kAnyVersion);
}

absl::StatusOr<CheckpointMetadata> ParseCheckpointMetadata(
    const std::map<std::string, std::string>& metadata, const std::string& path) {
  const auto field = [&metadata](const char* name) {
    const auto found = metadata.find(name);
    return found == metadata.end() ? std::string() : found->second;
  };
  if (!IsOfCheckpoint(metadata)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": is no checkpoint of a training run (its metadata lacks \"", kFormat, "\": \"",
        kWholeFormat, "\"); to start from bare weights, name them by model.init"));
  }
  if (field(kFormat) != kWholeFormat && field(kFormat) != kShardFormat) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": was written by another version of Lockstep (\"", field(kFormat),
        "\", this one reads \"", kWholeFormat, "\" and \"", kShardFormat, "\"), whose files have ",
        field(kFormat).ends_with(" 1") ? "no checksums" : "another form",
        "; go on with that version, or start anew with another --out"));
  }
  CheckpointMetadata parsed = {
      .info = {.model = field(kModel), .strategy = field(kStrategy), .base = field(kBase)}};
  for (const auto& [name, value] : metadata) {
    if (name.starts_with(kKeyPrefix)) parsed.info.keys[name.substr(sizeof(kKeyPrefix) - 1)] = value;
  }
  if (!absl::SimpleAtoi(field(kStep), &parsed.info.step) || parsed.info.step < 0) {
    return InvalidArgument(path, ": metadata says step '", field(kStep), "', which is no step");
  }
  if (metadata.contains(kChecked)) {
    int64_t& checked = parsed.info.checked_steps.emplace();
    if (!absl::SimpleAtoi(field(kChecked), &checked) || checked < 0 || checked > parsed.info.step) {
      return InvalidArgument(path, ": metadata says that a check was behind step '",
                             field(kChecked), "', of ", parsed.info.step);
    }
  }
  if (field(kFormat) == kWholeFormat) return parsed;
  ShardNumber number = {.set = field(kSet)};
  if (!absl::SimpleAtoi(field(kShard), &number.shard) ||
      !absl::SimpleAtoi(field(kShards), &number.shards) || number.shard < 1 ||
      number.shard > number.shards) {
    return InvalidArgument(path, ": metadata says shard '", field(kShard), "' of '", field(kShards),
                           "', which is no shard");
  }
  --number.shard;
  parsed.shard = number;
  return parsed;
}

std::string PartKey(const std::string& name) { return absl::StrCat("part ", name); }

}  // namespace lockstep
