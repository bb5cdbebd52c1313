#include "core/checkpoint/manifest.h"

#include <algorithm>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/checksum.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "lockstep manifest 2";
// The format of earlier versions, without a checksum of the manifest.
constexpr char kUncheckedFormat[] = "lockstep manifest 1";

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

Json FilesOf(const std::vector<ManifestEntry>& shards) {
  Json files = Json::array();
  for (const ManifestEntry& entry : shards) files.push_back(ToJson(entry));
  return files;
}

// A manifest as it is written: its checksum is that of its list, so that damage of the list is not
// taken for damage of a shard.
std::string Format(const std::vector<ManifestEntry>& shards) {
  const Json files = FilesOf(shards);
  const std::string checksum = absl::StrFormat("%016x", ChecksumOf(files.dump()));
  return Json{{"format", kFormat}, {"files", files}, {"checksum", checksum}}.dump(2) + "\n";
}

std::string UncheckedFormat(const std::vector<ManifestEntry>& shards) {
  return Json{{"format", kUncheckedFormat}, {"files", FilesOf(shards)}}.dump(2) + "\n";
}

// Whether this is the text of a manifest of these shards: whatever was left out of it, or read in
// another way, shows.
bool IsManifestOf(const std::vector<ManifestEntry>& shards, const std::string& text) {
  return text == Format(shards) || text == UncheckedFormat(shards);
}

std::string PathOf(const std::string& checkpoint) {
  return absl::StrCat(checkpoint, "/", kManifestName);
}

// What a manifest lists; none if it is damaged.
std::optional<std::vector<ManifestEntry>> Parse(const std::string& text) {
  const Json manifest = ParseJson<Json>(text);
  std::vector<ManifestEntry> shards;
  if (manifest.is_object() && manifest.contains("files") && manifest["files"].is_array()) {
    for (const Json& file : manifest["files"]) {
      if (const auto entry = EntryFrom(file)) shards.push_back(*entry);
    }
  }
  if (shards.empty() || !IsManifestOf(shards, text)) return std::nullopt;
  return shards;
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
  if (const auto shards = Parse(text)) return *shards;
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
  if (IsManifestOf(shards, *text)) return absl::OkStatus();
  const auto listed = Parse(*text);
  if (!listed) return absl::DataLossError(absl::StrCat(path, ": is damaged"));
  if (listed->size() != shards.size()) {
    return absl::DataLossError(absl::StrCat(path, ": lists ", listed->size(), " shards, where ",
                                            shards.size(), " are beside it"));
  }
  const auto differs = std::mismatch(shards.begin(), shards.end(), listed->begin()).first;
  return absl::DataLossError(absl::StrCat(checkpoint, "/", differs->name, ": is not the file that ",
                                          path, " lists: its size or its checksum is another one"));
}

}  // namespace lockstep
