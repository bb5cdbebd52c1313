#include "core/checkpoint/spread_copies.h"

#include <stdio.h>  // rename

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <iterator>  // std::ssize
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/checksum.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/checkpoint/between_ranks.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/checkpoint/draft.h"
#include "core/checkpoint/file_transfer.h"
#include "core/checkpoint/in_memory.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/safetensors.h"
#include "core/comm/agree.h"
#include "core/comm/host_numbers.h"

namespace lockstep {
namespace {

constexpr char kLabel[] = "copies in memory";

std::string NameOf(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

// A shard, and which rank has written it.
struct WrittenShard {
  int rank = 0;
  ManifestEntry entry;
};

// What all ranks have written, in the order of shards.
absl::StatusOr<std::vector<WrittenShard>> AllShards(const std::string& own_path,
                                                    const ShardNumber& number,
                                                    Communicator& ranks) {
  constexpr size_t kNumbers = 3;  // whether there is a shard, its bytes, its checksum
  int64_t own[kNumbers] = {};
  absl::Status status;
  if (!own_path.empty()) {
    const absl::StatusOr<SafetensorsReader> shard = SafetensorsReader::Open(own_path);
    status = shard.status();
    if (shard.ok()) {
      const ManifestEntry entry = EntryOf(*shard);
      own[0] = 1;
      own[1] = entry.bytes;
      own[2] = static_cast<int64_t>(entry.checksum);
    }
  }
  LS_RETURN_IF_ERROR(AgreeOnError(status, ranks));
  std::vector<int64_t> all(kNumbers * static_cast<size_t>(ranks.size()));
  LS_RETURN_IF_ERROR(GatherNumbers(ranks, own, absl::MakeSpan(all), kLabel));
  std::vector<WrittenShard> shards;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const int64_t* const numbers = &all[kNumbers * static_cast<size_t>(rank)];
    if (numbers[0] == 0) continue;
    const auto shard = static_cast<int64_t>(shards.size());
    shards.push_back({.rank = rank,
                      .entry = {.name = NameOf(ShardPath("", shard, number.shards)),
                                .bytes = numbers[1],
                                .checksum = static_cast<uint64_t>(numbers[2])}});
  }
  return shards;
}

// Whether a file is the shard of that entry, to each byte. NotFound: it is not there.
absl::Status CheckIsSound(const std::string& path, const ManifestEntry& entry) {
  LS_ASSIGN_OR_RETURN(const SafetensorsReader shard, SafetensorsReader::Open(path));
  if (!shard.has_checksums() || EntryOf(shard) != entry) {
    return absl::DataLossError(absl::StrCat(path, ": is not the file that its manifest lists"));
  }
  std::vector<std::byte> bytes;
  for (const SafetensorsTensor& tensor : shard.tensors()) {
    bytes.resize(static_cast<size_t>(tensor.bytes));
    LS_RETURN_IF_ERROR(shard.Read(tensor, bytes));
  }
  return absl::OkStatus();
}

// Tells the user what a machine has in vain; a part that another machine keeps is no damage.
void TellIfDamaged(const absl::Status& part, int rank) {
  if (part.ok() || absl::IsNotFound(part)) return;
  std::fprintf(stderr, "rank %d: a part of the copy in memory is not used: %s\n", rank,
               std::string(part.message()).c_str());
}

// What the files of a copy are called: the one file of a whole copy, or the shards of `count`.
std::vector<std::string> NamesOfFiles(CheckpointFiles files, int64_t step, int64_t count) {
  if (files == CheckpointFiles::kWhole) return {NameOf(CheckpointPath("", step, files))};
  std::vector<std::string> names;
  for (int64_t shard = 0; shard < count; ++shard) {
    names.push_back(NameOf(ShardPath("", shard, count)));
  }
  return names;
}

// A copy as a machine has it: a manifest and some of its shards; or one whole file, which counts as
// the only shard.
struct HeldCopy {
  FoundCheckpoint found;
  CheckpointFiles files = CheckpointFiles::kSharded;
  std::vector<ManifestEntry> shards;
  int64_t identity = 0;  // of what was saved together: equal manifests, at least 0

  std::string ShardOf(size_t shard) const {
    return files == CheckpointFiles::kWhole ? found.path
                                            : absl::StrCat(found.path, "/", shards[shard].name);
  }
};

// What a manifest lists, or would list of a whole file.
absl::StatusOr<std::vector<ManifestEntry>> ShardsOf(const std::string& path,
                                                    CheckpointFiles files) {
  if (files == CheckpointFiles::kSharded) return ReadManifest(path);
  LS_ASSIGN_OR_RETURN(const SafetensorsReader file, SafetensorsReader::Open(path));
  return std::vector<ManifestEntry>{EntryOf(file)};
}

// The copies whose files are known: whole files, and those with a manifest of shards.
std::vector<HeldCopy> HeldCopies(const std::vector<FoundCheckpoint>& all, int rank) {
  std::vector<HeldCopy> held;
  for (const FoundCheckpoint& found : all) {
    const CheckpointFiles files =
        IsDirectory(found.path) ? CheckpointFiles::kSharded : CheckpointFiles::kWhole;
    const auto shards = ShardsOf(found.path, files);
    TellIfDamaged(shards.status(), rank);
    if (!shards.ok()) continue;
    const auto names = NamesOfFiles(files, found.step, std::ssize(*shards));
    std::string text = files == CheckpointFiles::kWhole ? "whole\n" : "";
    bool are_named = true;
    for (size_t shard = 0; shard < shards->size(); ++shard) {
      const ManifestEntry& entry = (*shards)[shard];
      are_named = are_named && entry.name == names[shard] && entry.bytes > 0;
      absl::StrAppend(&text, entry.bytes, " ", entry.checksum, "\n");
    }
    if (!are_named) continue;
    const uint64_t identity = ChecksumOf(text) & std::numeric_limits<int64_t>::max();
    held.push_back({.found = found,
                    .files = files,
                    .shards = *shards,
                    .identity = static_cast<int64_t>(identity)});
  }
  return held;
}

absl::StatusOr<int64_t> Reduced(int64_t own, ReduceOp op, Communicator& ranks) {
  LS_RETURN_IF_ERROR(AllReduceNumbers(ranks, absl::MakeSpan(&own, 1), op, kLabel));
  return own;
}

// The order of copies: by step, and then, as a machine that was away may have kept another set of
// the same step, by identity.
using CopyKey = std::pair<int64_t, int64_t>;

CopyKey KeyOf(const HeldCopy& copy) { return {copy.found.step, copy.identity}; }

// What machines know together of one copy, the same on all ranks.
struct Candidate {
  CopyKey key = {-1, 0};  // a step of -1: there is none
  CheckpointFiles files = CheckpointFiles::kSharded;
  std::vector<ManifestEntry> shards;
  std::vector<std::vector<bool>> held;  // [machine][shard]: whether it is there and sound
};

// The newest copy before `limit` of which a machine has the manifest. `held` is what the first rank
// of a machine has found; other ranks have found nothing.
absl::StatusOr<Candidate> NewestBefore(const CopyKey& limit, const std::vector<HeldCopy>& held,
                                       const Machines& machines, Communicator& ranks) {
  Candidate candidate;
  CopyKey newest = candidate.key;
  for (const HeldCopy& copy : held) {
    if (KeyOf(copy) < limit) newest = std::max(newest, KeyOf(copy));
  }
  LS_ASSIGN_OR_RETURN(candidate.key.first, Reduced(newest.first, ReduceOp::kMax, ranks));
  if (candidate.key.first < 0) return candidate;
  const int64_t identity = newest.first == candidate.key.first ? newest.second : -1;
  LS_ASSIGN_OR_RETURN(candidate.key.second, Reduced(identity, ReduceOp::kMax, ranks));
  const auto own = std::find_if(held.begin(), held.end(),
                                [&](const HeldCopy& copy) { return KeyOf(copy) == candidate.key; });
  const bool has_any = own != held.end();
  LS_ASSIGN_OR_RETURN(const int64_t lowest,
                      Reduced(has_any ? ranks.rank() : ranks.size(), ReduceOp::kMin, ranks));
  const int holder = static_cast<int>(lowest);
  const bool tells = ranks.rank() == holder;
  int64_t told[2] = {};  // how many shards, and whether they are one whole file
  if (tells) {
    told[0] = std::ssize(own->shards);
    told[1] = own->files == CheckpointFiles::kWhole ? 1 : 0;
  }
  LS_RETURN_IF_ERROR(BroadcastNumbers(ranks, absl::MakeSpan(told), holder, kLabel));
  const auto count = static_cast<size_t>(told[0]);
  candidate.files = told[1] == 1 ? CheckpointFiles::kWhole : CheckpointFiles::kSharded;
  std::vector<int64_t> entries(2 * count);
  for (size_t i = 0; tells && i < count; ++i) {
    entries[2 * i] = own->shards[i].bytes;
    entries[2 * i + 1] = static_cast<int64_t>(own->shards[i].checksum);
  }
  LS_RETURN_IF_ERROR(BroadcastNumbers(ranks, absl::MakeSpan(entries), holder, kLabel));
  const auto names = NamesOfFiles(candidate.files, candidate.key.first, told[0]);
  for (size_t i = 0; i < count; ++i) {
    candidate.shards.push_back({.name = names[i],
                                .bytes = entries[2 * i],
                                .checksum = static_cast<uint64_t>(entries[2 * i + 1])});
  }
  std::vector<int64_t> sound(count);
  for (size_t i = 0; has_any && i < count; ++i) {
    const absl::Status part = CheckIsSound(own->ShardOf(i), own->shards[i]);
    TellIfDamaged(part, ranks.rank());
    sound[i] = part.ok() ? 1 : 0;
  }
  std::vector<int64_t> all(count * static_cast<size_t>(ranks.size()));
  LS_RETURN_IF_ERROR(GatherNumbers(ranks, sound, absl::MakeSpan(all), kLabel));
  for (int machine = 0; machine < machines.count(); ++machine) {
    const auto first = static_cast<size_t>(machines.RanksOf(machine).front());
    candidate.held.emplace_back();
    for (size_t i = 0; i < count; ++i) candidate.held.back().push_back(all[first * count + i] != 0);
  }
  return candidate;
}

// The machine that has a shard; none: it is lost.
std::optional<int> HolderOf(const Candidate& candidate, size_t shard) {
  for (size_t machine = 0; machine < candidate.held.size(); ++machine) {
    if (candidate.held[machine][shard]) return static_cast<int>(machine);
  }
  return std::nullopt;
}

bool IsWhole(const Candidate& candidate) {
  for (size_t shard = 0; shard < candidate.shards.size(); ++shard) {
    if (!HolderOf(candidate, shard)) return false;
  }
  return true;
}

// Sets all copies of a machine apart but the one at `path`.
absl::Status SetApartAllBut(const std::string& path, const std::string& run_directory) {
  LS_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> all,
                      ListCheckpoints(InMemoryFolder(run_directory)));
  for (const FoundCheckpoint& found : all) {
    if (found.path != path) LS_RETURN_IF_ERROR(SetCopyApart(run_directory, found));
  }
  return absl::OkStatus();
}

// Whether rank 0 finds nothing against a copy with `steps` behind it.
absl::StatusOr<bool> IsWanted(int64_t steps, Communicator& ranks,
                              absl::FunctionRef<absl::Status(int64_t steps)> check) {
  int64_t is_wanted = 1;
  if (ranks.rank() == 0) {
    const absl::Status checked = check(steps);
    is_wanted = checked.ok() ? 1 : 0;
    if (!checked.ok()) {
      std::fprintf(stderr, "--resume passes a copy in memory of %lld steps over: %s\n",
                   static_cast<long long>(steps), std::string(checked.message()).c_str());
    }
  }
  LS_RETURN_IF_ERROR(BroadcastNumbers(ranks, absl::MakeSpan(&is_wanted, 1), 0, kLabel));
  return is_wanted == 1;
}

// The newest copy that is whole and wanted; of a step of -1: there is none.
absl::StatusOr<Candidate> Choose(const std::vector<HeldCopy>& held, const Machines& machines,
                                 Communicator& ranks,
                                 absl::FunctionRef<absl::Status(int64_t steps)> check) {
  CopyKey limit = {std::numeric_limits<int64_t>::max(), 0};
  while (true) {
    LS_ASSIGN_OR_RETURN(Candidate copy, NewestBefore(limit, held, machines, ranks));
    if (copy.key.first < 0) return copy;
    if (IsWhole(copy)) {
      LS_ASSIGN_OR_RETURN(const bool is_wanted, IsWanted(copy.key.first, ranks, check));
      if (is_wanted) return copy;
    }
    limit = copy.key;
  }
}

}  // namespace

absl::StatusOr<int64_t> BytesOfMachine(int64_t own, const Machines& machines, Communicator& ranks) {
  std::vector<int64_t> all(static_cast<size_t>(ranks.size()));
  LS_RETURN_IF_ERROR(GatherNumbers(ranks, {&own, 1}, absl::MakeSpan(all), kLabel));
  const int machine = machines.Of(ranks.rank());
  int64_t bytes = 0;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const bool is_kept =
        machines.Of(rank) == machine || machines.Of(machines.NeighbourOf(rank)) == machine;
    if (is_kept) bytes += all[static_cast<size_t>(rank)];
  }
  return bytes;
}

SpreadCopies::SpreadCopies(std::string folder, const Machines& machines, Kernels& kernels,
                           Communicator& ranks)
    : folder_(std::move(folder)), machines_(machines), kernels_(kernels), ranks_(ranks) {}

absl::Status SpreadCopies::Save(const CheckpointInfo& info, const std::vector<StateTensor>& state) {
  const absl::Status written = Write(info, state);
  if (!written.ok() && machines_.IsFirst(ranks_.rank())) RemoveDrafts(folder_);
  return written;
}

absl::Status SpreadCopies::Write(const CheckpointInfo& info,
                                 const std::vector<StateTensor>& state) {
  const bool is_first = machines_.IsFirst(ranks_.rank());
  const auto on_first = [&](auto&& run) {
    return AgreeOnError(is_first ? run() : absl::OkStatus(), ranks_);
  };
  LS_ASSIGN_OR_RETURN(const ShardNumber number, NumberShards(state, ranks_));
  const FoundCheckpoint copy = {
      .step = info.step, .path = CheckpointPath(folder_, info.step, CheckpointFiles::kSharded)};
  const std::string draft = DraftPath(copy.path);
  const bool saves = std::any_of(state.begin(), state.end(), IsSaved);
  LS_RETURN_IF_ERROR(on_first([&] {
    RemoveDrafts(folder_);
    return MakeDirectories(draft);
  }));
  LS_RETURN_IF_ERROR(
      AgreeOnError(MakeShardedDraft(draft, info, number)->Fill(state, kernels_, {}), ranks_));
  const auto own_shard = [&](const std::string& folder) {
    return saves ? ShardPath(folder, number.shard, number.shards) : "";
  };
  LS_ASSIGN_OR_RETURN(const std::vector<WrittenShard> shards,
                      AllShards(own_shard(draft), number, ranks_));
  std::vector<FileTransfer> transfers;
  std::vector<ManifestEntry> entries;
  for (const WrittenShard& shard : shards) {
    entries.push_back(shard.entry);
    const int neighbour = machines_.NeighbourOf(shard.rank);
    if (machines_.Of(neighbour) == machines_.Of(shard.rank)) continue;  // the leg has one machine
    transfers.push_back({.from = shard.rank,
                         .to = neighbour,
                         .name = shard.entry.name,
                         .bytes = shard.entry.bytes});
  }
  LS_RETURN_IF_ERROR(AgreeOnError(TransferFiles(draft, transfers, ranks_), ranks_));
  LS_RETURN_IF_ERROR(on_first([&] { return WriteManifest(draft, entries); }));
  LS_RETURN_IF_ERROR(on_first([&] { return Publish(copy.path); }));
  own_shard_ = own_shard(copy.path);
  // All machines have it now: nobody needs the one before.
  if (!is_first) return absl::OkStatus();
  LS_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> all, ListCheckpoints(folder_));
  KeepNewest(all, copy, 1);
  return absl::OkStatus();
}

absl::Status SpreadCopies::ReadOwn(const std::vector<StateTensor>& state) const {
  if (own_shard_.empty()) return absl::OkStatus();
  LS_ASSIGN_OR_RETURN(const SafetensorsReader shard, SafetensorsReader::Open(own_shard_));
  for (const StateTensor& part : state) {
    if (!IsSaved(part)) continue;
    const SafetensorsTensor* const stored = shard.Find(part.name);
    if (stored == nullptr || stored->bytes != part.tensor.bytes()) {
      return absl::DataLossError(
          absl::StrCat(own_shard_, ": does not hold what was saved of '", part.name, "'"));
    }
    LS_RETURN_IF_ERROR(
        shard.Read(*stored, {part.tensor.raw(), static_cast<size_t>(part.tensor.bytes())}));
  }
  return absl::OkStatus();
}

absl::Status BringTogether(const std::string& run_directory, const Machines& machines,
                           Communicator& ranks,
                           absl::FunctionRef<absl::Status(int64_t steps)> check) {
  const std::string folder = InMemoryFolder(run_directory);
  const bool is_first = machines.IsFirst(ranks.rank());
  LS_RETURN_IF_ERROR(AgreeOnFirst(
      folder.empty() ? absl::FailedPreconditionError(absl::StrCat(
                           "--resume: ", run_directory,
                           " is not there; all ranks must see the run's directory, by --out"))
                     : absl::OkStatus(),
      ranks));
  std::vector<HeldCopy> held;
  if (is_first) {
    RemoveDrafts(folder);
    PutCopiesBack(run_directory);
    std::vector<FoundCheckpoint> all = ListCopiesApart(run_directory);
    if (const auto in_place = ListCheckpoints(folder); in_place.ok()) {
      all.insert(all.end(), in_place->begin(), in_place->end());
    }
    held = HeldCopies(all, ranks.rank());
  }
  LS_ASSIGN_OR_RETURN(const Candidate copy, Choose(held, machines, ranks, check));
  if (copy.key.first < 0) {
    return AgreeOnError(is_first ? SetApartAllBut("", run_directory) : absl::OkStatus(), ranks);
  }
  std::vector<FileTransfer> transfers;
  int64_t missing_here = 0;
  for (size_t shard = 0; shard < copy.shards.size(); ++shard) {
    const int from = machines.RanksOf(*HolderOf(copy, shard)).front();
    for (int machine = 0; machine < machines.count(); ++machine) {
      if (copy.held[static_cast<size_t>(machine)][shard]) continue;
      const ManifestEntry& entry = copy.shards[shard];
      transfers.push_back({.from = from,
                           .to = machines.RanksOf(machine).front(),
                           .name = entry.name,
                           .bytes = entry.bytes});
      if (machine == machines.Of(ranks.rank())) missing_here += entry.bytes;
    }
  }
  const std::string path = CheckpointPath(folder, copy.key.first, copy.files);
  const bool is_sharded = copy.files == CheckpointFiles::kSharded;
  const std::string folder_of_files = is_sharded ? path : folder;
  absl::Status status;
  // What this machine has of another set, even at the same path, is none of the copy.
  const auto own = std::find_if(held.begin(), held.end(),
                                [&](const HeldCopy& each) { return KeyOf(each) == copy.key; });
  const bool has_any = own != held.end();
  if (is_first) {
    status = SetApartAllBut(has_any ? own->found.path : "", run_directory);
    if (status.ok() && has_any && own->found.path != path) {
      if (rename(own->found.path.c_str(), path.c_str()) != 0) {
        status =
            absl::ErrnoToStatus(errno, absl::StrCat("cannot rename \"", own->found.path, "\""));
      }
    }
    if (status.ok()) status = MakeInMemoryFolder(run_directory, missing_here);
    if (status.ok()) status = MakeDirectories(folder_of_files);
  }
  // Without room on one of them there is no copy on any.
  status = AgreeOnError(status, ranks);
  if (status.ok()) status = AgreeOnError(TransferFiles(folder_of_files, transfers, ranks), ranks);
  if (status.ok() && is_sharded) {
    status = AgreeOnError(is_first ? WriteManifest(path, copy.shards) : absl::OkStatus(), ranks);
  }
  LS_RETURN_IF_ERROR(ranks.status());
  if (status.ok()) return absl::OkStatus();
  if (is_first && !has_any) RemoveTree(path);  // what has come of it
  LS_RETURN_IF_ERROR(
      AgreeOnError(is_first ? SetApartAllBut("", run_directory) : absl::OkStatus(), ranks));
  if (ranks.rank() == 0) {
    std::fprintf(stderr, "the copies in memory of %d machines are not brought together: %s\n",
                 machines.count(), std::string(status.message()).c_str());
  }
  return absl::OkStatus();
}

}  // namespace lockstep
