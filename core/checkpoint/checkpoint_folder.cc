#include "core/checkpoint/checkpoint_folder.h"

#include <stdio.h>  // rename

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/file.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

constexpr char kPrefix[] = "step-";
constexpr char kFileSuffix[] = ".safetensors";
constexpr char kDraftMark[] = ".tmp";
// A folder of shards whose place another one of the same step is about to take: no single rename
// replaces a folder that holds something.
constexpr char kReplacedSuffix[] = ".replaced";
// A damaged checkpoint that a run has gone back behind. Nobody reads or removes it but a person.
constexpr char kDamagedSuffix[] = ".damaged";
// A checkpoint that was saved while wrong bits may have come up. Likewise.
constexpr char kSuspectSuffix[] = ".suspect";
constexpr char kShardPrefix[] = "shard-";
constexpr char kOf[] = "-of-";

// What may follow the step in a name. Where a kill has left several of one step, the last is taken.
constexpr const char* kSuffixes[] = {kReplacedSuffix, "", kFileSuffix};

// Step and kind of suffix that a name stands for.
bool ParseName(const std::string& name, int64_t* step, size_t* kind) {
  if (!name.starts_with(kPrefix)) return false;
  const std::string rest = name.substr(sizeof(kPrefix) - 1);
  const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  const auto suffix = std::find(std::begin(kSuffixes), std::end(kSuffixes), rest.substr(digits));
  *kind = static_cast<size_t>(suffix - std::begin(kSuffixes));
  return suffix != std::end(kSuffixes) && absl::SimpleAtoi(rest.substr(0, digits), step);
}

// Takes `suffix` off the end of a name. False where the name does not end so.
bool TakeOff(const char* suffix, std::string* name) {
  if (!name->ends_with(suffix)) return false;
  name->resize(name->size() - std::string(suffix).size());
  return true;
}

// How many shards a name speaks of; 0 if it is no shard's.
int64_t ShardsByName(const std::string& name) {
  const size_t of = name.find(kOf);
  if (!name.starts_with(kShardPrefix) || !name.ends_with(kFileSuffix) || of == std::string::npos) {
    return 0;
  }
  const size_t begin = of + sizeof(kOf) - 1, end = name.size() - (sizeof(kFileSuffix) - 1);
  int64_t shards = 0;
  return begin < end && absl::SimpleAtoi(name.substr(begin, end - begin), &shards) ? shards : 0;
}

// The names in a folder; none if there is no folder.
absl::StatusOr<std::set<std::string>> Names(const std::string& folder) {
  const absl::StatusOr<std::vector<std::string>> names = ListFolder(folder);
  if (absl::IsNotFound(names.status())) return std::set<std::string>();
  if (!names.ok()) return names.status();
  return std::set<std::string>(names->begin(), names->end());
}

// Deletes a checkpoint: at no time is there half of one.
void Delete(const std::string& checkpoint) {
  const std::string doomed = absl::StrCat(checkpoint, kDraftMark, "-deleted");
  const bool is_renamed = rename(checkpoint.c_str(), doomed.c_str()) == 0;
  RemoveTree(is_renamed ? doomed : checkpoint);
}

// Renames a checkpoint in place of what has the name already. Returns the name.
absl::StatusOr<std::string> SetAside(const std::string& checkpoint, const char* suffix) {
  const std::string aside = absl::StrCat(checkpoint, suffix);
  if (PathExists(aside)) Delete(aside);
  LS_RETURN_IF_ERROR(PutInPlace(checkpoint, aside));
  return aside;
}

}  // namespace

std::string CheckpointPath(const std::string& folder, int64_t step, CheckpointFiles files) {
  return absl::StrFormat("%s/%s%08d%s", folder, kPrefix, step,
                         files == CheckpointFiles::kWhole ? kFileSuffix : "");
}

std::string ShardPath(const std::string& checkpoint, int64_t shard, int64_t shards) {
  return absl::StrFormat("%s/%s%05d%s%05d%s", checkpoint, kShardPrefix, shard + 1, kOf, shards,
                         kFileSuffix);
}

absl::StatusOr<std::vector<FoundCheckpoint>> ListCheckpoints(const std::string& folder) {
  LS_ASSIGN_OR_RETURN(const std::set<std::string> names, Names(folder));
  std::vector<std::tuple<int64_t, size_t, std::string>> found;
  for (const std::string& name : names) {
    int64_t step;
    size_t kind;
    if (ParseName(name, &step, &kind)) found.emplace_back(step, kind, name);
  }
  std::sort(found.begin(), found.end());
  std::vector<FoundCheckpoint> checkpoints;
  for (const auto& [step, kind, name] : found) {
    checkpoints.push_back({step, absl::StrCat(folder, "/", name)});
  }
  return checkpoints;
}

absl::StatusOr<std::vector<SetAsideCheckpoint>> ListSetAside(const std::string& folder) {
  LS_ASSIGN_OR_RETURN(const std::set<std::string> names, Names(folder));
  std::vector<SetAsideCheckpoint> all;
  for (const std::string& name : names) {
    std::string rest = name;
    const bool is_damaged = TakeOff(kDamagedSuffix, &rest);
    if (!is_damaged && !TakeOff(kSuspectSuffix, &rest)) continue;
    int64_t step;
    size_t kind;
    if (!ParseName(rest, &step, &kind)) continue;
    all.push_back(
        {.step = step, .path = absl::StrCat(folder, "/", name), .is_damaged = is_damaged});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.step < b.step; });
  return all;
}

bool IsOneCheckpoint(const std::string& path) {
  if (!IsDirectory(path)) return true;
  std::string name = path;
  while (name.ends_with('/')) name.pop_back();
  name.erase(0, name.rfind('/') + 1);  // all stays where there is none
  if (!TakeOff(kDamagedSuffix, &name)) TakeOff(kSuspectSuffix, &name);
  int64_t step;
  size_t kind;
  if (ParseName(name, &step, &kind)) return true;
  const auto files = Names(path);
  return files.ok() && std::any_of(files->begin(), files->end(),
                                   [](const std::string& file) { return ShardsByName(file) > 0; });
}

absl::StatusOr<std::vector<std::string>> ListShards(const std::string& checkpoint) {
  LS_ASSIGN_OR_RETURN(std::set<std::string> names, Names(checkpoint));
  std::erase_if(names, [](const std::string& name) { return ShardsByName(name) == 0; });
  if (names.empty()) {
    return absl::DataLossError(absl::StrCat(checkpoint, ": holds no file of a checkpoint (",
                                            kShardPrefix, "<number>", kOf, "<number>", kFileSuffix,
                                            ")"));
  }
  const int64_t shards = ShardsByName(*names.begin());
  std::vector<std::string> paths;
  for (int64_t shard = 0; shard < shards; ++shard) {
    paths.push_back(ShardPath(checkpoint, shard, shards));
    if (names.erase(paths.back().substr(checkpoint.size() + 1)) == 0) {
      return absl::DataLossError(absl::StrCat(paths.back(),
                                              ": is missing; the checkpoint consists of ", shards,
                                              " such files; put it back"));
    }
  }
  if (!names.empty()) {
    return absl::DataLossError(absl::StrCat(checkpoint, "/", *names.begin(),
                                            ": does not belong to this checkpoint of ", shards,
                                            " shards; move it elsewhere"));
  }
  return paths;
}

absl::StatusOr<int64_t> CheckpointBytes(const std::string& checkpoint) {
  if (!IsDirectory(checkpoint)) return FileBytes(checkpoint);
  LS_ASSIGN_OR_RETURN(const std::vector<std::string> files, ListFolder(checkpoint));
  int64_t bytes = 0;
  for (const std::string& file : files) {
    LS_ASSIGN_OR_RETURN(const int64_t size, FileBytes(absl::StrCat(checkpoint, "/", file)));
    bytes += size;
  }
  return bytes;
}

std::string DraftPath(const std::string& checkpoint) {
  return absl::StrCat(checkpoint, kDraftMark);
}

void RemoveDrafts(const std::string& folder) {
  const auto names = Names(folder);
  if (!names.ok()) return;  // whoever writes into the folder will say so
  for (const std::string& name : *names) {
    if (name.starts_with(kPrefix) && name.find(kDraftMark) != std::string::npos) {
      RemoveTree(absl::StrCat(folder, "/", name));
    }
  }
}

absl::Status Publish(const std::string& checkpoint) {
  const std::string replaced = absl::StrCat(checkpoint, kReplacedSuffix);
  if (IsDirectory(checkpoint)) {
    Delete(replaced);
    LS_RETURN_IF_ERROR(PutInPlace(checkpoint, replaced));
  }
  LS_RETURN_IF_ERROR(PutInPlace(DraftPath(checkpoint), checkpoint));
  Delete(replaced);
  return absl::OkStatus();
}

absl::StatusOr<std::string> SetAsideDamaged(const std::string& checkpoint) {
  return SetAside(checkpoint, kDamagedSuffix);
}

absl::StatusOr<std::string> SetAsideSuspect(const std::string& checkpoint) {
  return SetAside(checkpoint, kSuspectSuffix);
}

void KeepNewest(const std::vector<FoundCheckpoint>& all, const FoundCheckpoint& newest,
                int64_t keep, std::optional<int64_t> checked_steps) {
  int64_t kept = 0;
  bool awaits_checked = checked_steps.has_value();
  for (auto found = all.rbegin(); found != all.rend(); ++found) {
    const bool superseded = found->step == newest.step && found->path != newest.path;
    const bool is_checked = awaits_checked && found->step <= *checked_steps;
    if (superseded || (kept >= keep && !is_checked)) {
      Delete(found->path);
      continue;
    }
    ++kept;
    if (is_checked) awaits_checked = false;
  }
}

}  // namespace lockstep
