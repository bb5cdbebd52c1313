#include "core/checkpoint/manifest.h"

#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "lockstep manifest 1";

Json ToJson(const ManifestEntry& entry) {
  return {{"name", entry.name},
          {"bytes", entry.bytes},
          {"checksum", absl::StrFormat("%016x", entry.checksum)}};
}

std::optional<ManifestEntry> EntryFrom(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  const Json name = json.value("name", Json()), bytes = json.value("bytes", Json()),
             checksum = json.value("checksum", Json());
  ManifestEntry entry;
  if (!name.is_string() || !bytes.is_number_integer() || !checksum.is_string() ||
      !absl::SimpleHexAtoi(checksum.get<std::string>(), &entry.checksum)) {
    return std::nullopt;
  }
  entry.name = name;
  entry.bytes = bytes;
  return entry;
}

std::string Format(const std::vector<ManifestEntry>& shards) {
  Json files = Json::array();
  for (const ManifestEntry& entry : shards) files.push_back(ToJson(entry));
  return Json{{"format", kFormat}, {"files", files}}.dump(2) + "\n";
}

std::string PathOf(const std::string& checkpoint) {
  return absl::StrCat(checkpoint, "/", kManifestName);
}

// The first shard that a manifest does not list as it is; none if the manifest is to blame.
std::optional<std::string> FirstDifference(const std::string& text,
                                           const std::vector<ManifestEntry>& shards) {
  const Json manifest = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object() || !manifest.contains("files")) return std::nullopt;
  const Json& files = manifest["files"];
  if (!files.is_array() || files.size() != shards.size()) return std::nullopt;
  for (size_t i = 0; i < shards.size(); ++i) {
    if (files[i] != ToJson(shards[i])) return shards[i].name;
  }
  return std::nullopt;
}

}  // namespace

ManifestEntry EntryOf(const SafetensorsReader& shard) {
  return {.name = shard.path().substr(shard.path().find_last_of('/') + 1),
          .bytes = shard.file_bytes(),
          .checksum = shard.checksum()};
}

absl::Status WriteManifest(const std::string& checkpoint) {
  LS_ASSIGN_OR_RETURN(const std::vector<std::string> paths, ListShards(checkpoint));
  std::vector<ManifestEntry> shards;
  for (const std::string& path : paths) {
    LS_ASSIGN_OR_RETURN(const SafetensorsReader shard, SafetensorsReader::Open(path));
    shards.push_back(EntryOf(shard));
  }
  return WriteManifest(checkpoint, shards);
}

absl::Status WriteManifest(const std::string& checkpoint,
                           const std::vector<ManifestEntry>& shards) {
  return WriteFileAtomically(PathOf(checkpoint), Format(shards));
}

absl::StatusOr<std::vector<ManifestEntry>> ReadManifest(const std::string& checkpoint) {
  LS_ASSIGN_OR_RETURN(const std::string text, ReadFile(PathOf(checkpoint)));
  const Json manifest = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::vector<ManifestEntry> shards;
  if (manifest.is_object() && manifest.contains("files") && manifest["files"].is_array()) {
    for (const Json& file : manifest["files"]) {
      if (const auto entry = EntryFrom(file)) shards.push_back(*entry);
    }
  }
  // Whatever was left out or read in another way shows.
  if (!shards.empty() && Format(shards) == text) return shards;
  return absl::DataLossError(absl::StrCat(PathOf(checkpoint), ": is damaged"));
}

absl::Status CheckManifest(const std::string& checkpoint,
                           const std::vector<ManifestEntry>& shards) {
  const std::string path = PathOf(checkpoint);
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (absl::IsNotFound(text.status())) {
    return absl::DataLossError(
        absl::StrCat(path, ": is missing; the checkpoint is not whole without it"));
  }
  if (!text.ok()) return text.status();
  if (*text == Format(shards)) return absl::OkStatus();
  if (const auto name = FirstDifference(*text, shards)) {
    return absl::DataLossError(absl::StrCat(checkpoint, "/", *name, ": is not the file that ", path,
                                            " lists: its size or its checksum is another one"));
  }
  return absl::DataLossError(absl::StrCat(path, ": is damaged: it does not list the ",
                                          shards.size(), " shards beside it"));
}

}  // namespace lockstep
