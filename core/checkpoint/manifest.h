// The manifest of a checkpoint of several files: manifest.json beside the shards, which names each
// of them with its size and a checksum over all that it holds, and has a checksum itself. Rank 0
// writes it from the shards as they lie on the disk, at last; a folder without it is no whole
// checkpoint. A checkpoint of one file needs none: its header names all tensors, and is held to a
// checksum itself.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/safetensors.h"

namespace lockstep {

inline constexpr char kManifestName[] = "manifest.json";

struct ManifestEntry {
  std::string name;  // of the file, in the folder
  int64_t bytes = 0;
  uint64_t checksum = 0;  // SafetensorsReader::checksum

  friend bool operator==(const ManifestEntry&, const ManifestEntry&) = default;
};

// The entry of an open shard that has checksums.
ManifestEntry EntryOf(const SafetensorsReader& shard);

// Writes the manifest of the shards in a folder. An error names the shard that is missing, or that
// cannot be read.
absl::Status WriteManifest(const std::string& checkpoint);
// Writes the manifest of these shards, of which the folder may lack some.
absl::Status WriteManifest(const std::string& checkpoint, const std::vector<ManifestEntry>& shards);

// What the manifest of a folder lists. NotFound where there is none, DataLoss if it is damaged.
absl::StatusOr<std::vector<ManifestEntry>> ReadManifest(const std::string& checkpoint);

// Holds the shards of a folder to its manifest. DataLoss names the shard that is another one than
// the manifest says, or the manifest where that is missing or damaged.
absl::Status CheckManifest(const std::string& checkpoint, const std::vector<ManifestEntry>& shards);

}  // namespace lockstep
