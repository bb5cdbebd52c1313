// Looks after checkpoints of runs.
//
//   ./bazelw run //tools/checkpoint -- list runs/gpt_markov/fsdp
//   ./bazelw run //tools/checkpoint -- verify runs/gpt_markov/fsdp
//   ./bazelw run //tools/checkpoint -- compare runs/gpt_markov/fsdp runs/gpt_markov/single
//   ./bazelw run //tools/checkpoint -- reshape runs/gpt_markov/fsdp /tmp/whole --shards 1
//   ./bazelw run //tools/checkpoint -- copies
//   ./bazelw run //tools/checkpoint -- remove_copies

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "core/checkpoint/stored_checkpoint.h"  // IsDamage
#include "tools/checkpoint/operations.h"

ABSL_FLAG(int64_t, shards, 1, "reshape: how many files to write; 1: one whole file");

namespace lockstep {
namespace {

using Words = std::vector<std::string>;

constexpr int64_t kMostShards = 99'999;  // as names of files have five digits

// What a list says of a checkpoint behind its numbers, or before what is wrong with it.
std::string AboutKind(const ListedCheckpoint& listed) {
  switch (listed.kind) {
    case ListedCheckpoint::Kind::kGoesOn:
      return "";
    case ListedCheckpoint::Kind::kBest:
      return "best validation loss";
    case ListedCheckpoint::Kind::kSuspect:
      return "set aside, as its bits may be wrong";
    case ListedCheckpoint::Kind::kDamaged:
      return "set aside as damaged";
  }
  return "";
}

// 1 if one of them cannot be used, but for those that were set aside.
absl::StatusOr<int> RunList(const Words& words) {
  LS_ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> list, ListAll(UserPath(words[0])));
  int code = 0;
  for (const ListedCheckpoint& listed : list) {
    const std::string kind = AboutKind(listed);
    if (!listed.status.ok()) {
      if (!listed.is_set_aside()) code = 1;
      std::printf("%s  %s%s: %s\n", listed.path.c_str(),
                  kind.empty() ? "" : absl::StrCat(kind, "; ").c_str(),
                  IsDamage(listed.status) ? "damaged" : "cannot be read",
                  std::string(listed.status.message()).c_str());
      continue;
    }
    std::printf("%s  step %s, by %s: %s tensors, %s in %s file%s%s\n", listed.path.c_str(),
                absl::StrCat(listed.info.step).c_str(), listed.info.strategy.c_str(),
                absl::StrCat(listed.tensors).c_str(), FormatBytes(listed.bytes).c_str(),
                absl::StrCat(listed.files).c_str(), listed.files == 1 ? "" : "s",
                kind.empty() ? "" : absl::StrCat("; ", kind).c_str());
  }
  return code;
}

// 1 if one of them is damaged or missing.
absl::StatusOr<int> RunVerify(const Words& words) {
  int code = 0;
  for (const std::string& word : words) {
    const absl::StatusOr<std::string> path = ResolveCheckpoint(UserPath(word));
    if (!path.ok()) {
      code = 1;
      std::fprintf(stderr, "%s\n", std::string(path.status().message()).c_str());
      continue;
    }
    const std::vector<absl::Status> damage = FindDamage(*path);
    if (!damage.empty() && IsGone(*path)) {
      code = 1;
      std::printf(
          "%s: was removed while it was read, as a run that trains does; verify the run "
          "again\n",
          path->c_str());
      continue;
    }
    if (damage.empty()) std::printf("%s: each byte is the one that was saved\n", path->c_str());
    for (const absl::Status& each : damage) {
      code = 1;
      std::printf("%s\n", std::string(each.message()).c_str());
    }
  }
  return code;
}

void Print(const TensorDifference& difference) {
  if (!difference.what.empty()) {
    std::printf("  %s %s\n", difference.tensor.c_str(), difference.what.c_str());
    return;
  }
  std::printf(
      "  %s: %s of %s elements differ, by at most %g; the first is element %s, %.9g and "
      "%.9g\n",
      difference.tensor.c_str(), absl::StrCat(difference.differing).c_str(),
      absl::StrCat(difference.elements).c_str(), difference.largest,
      absl::StrCat(difference.first).c_str(), difference.first_a, difference.first_b);
}

// 0 if all tensors have the same bits, 1 if not.
absl::StatusOr<int> RunCompare(const Words& words) {
  LS_ASSIGN_OR_RETURN(const std::string a, ResolveCheckpoint(UserPath(words[0])));
  LS_ASSIGN_OR_RETURN(const std::string b, ResolveCheckpoint(UserPath(words[1])));
  LS_ASSIGN_OR_RETURN(const CheckpointDifferences result, Compare(a, b));
  for (const auto& [path, info] : {std::pair(a, result.a), std::pair(b, result.b)}) {
    std::printf("%s: step %s, by %s\n", path.c_str(), absl::StrCat(info.step).c_str(),
                info.strategy.c_str());
  }
  if (result.differences.empty()) {
    std::printf("all %s tensors have the same bits\n", absl::StrCat(result.tensors).c_str());
    return 0;
  }
  std::printf("%zu tensors differ:\n", result.differences.size());
  for (const TensorDifference& difference : result.differences) Print(difference);
  return 1;
}

absl::StatusOr<int> RunReshape(const Words& words) {
  const int64_t shards = absl::GetFlag(FLAGS_shards);
  LS_RETURN_IF_ERROR(CheckRange("shards", shards, 1, kMostShards));
  LS_ASSIGN_OR_RETURN(const std::string from, ResolveCheckpoint(UserPath(words[0])));
  LS_ASSIGN_OR_RETURN(const std::string path, Reshape(from, UserPath(words[1]), shards));
  std::printf("%s\n", path.c_str());
  return 0;
}

// What a list says of the run that copies are of.
std::string AboutRun(const ListedCopies& copies) {
  const std::string of = absl::StrCat("of ", copies.folder.run_directory, ": ");
  switch (copies.need) {
    case ListedCopies::Need::kRunMayGoOn:
      return of + "the run is not complete and may go on from them";
    case ListedCopies::Need::kRunIsGone:
      return of + "left over, as there is no such directory";
    case ListedCopies::Need::kRunIsOver:
      return of + "left over, as the run is complete";
    case ListedCopies::Need::kRunIsUnknown:
      return "of a run of an earlier version; where no such run is to go on, remove the folder";
  }
  return of;
}

absl::StatusOr<int> RunCopies(const Words&) {
  LS_ASSIGN_OR_RETURN(const std::vector<ListedCopies> list, ListCopies());
  int64_t bytes = 0;
  for (const ListedCopies& copies : list) {
    const FoundInMemoryFolder& folder = copies.folder;
    std::printf("%s  %s, %s, %s\n", folder.path.c_str(), FormatBytes(folder.bytes).c_str(),
                folder.steps < 0 ? "no whole copy" : absl::StrCat("step ", folder.steps).c_str(),
                AboutRun(copies).c_str());
    if (copies.is_left_over()) bytes += folder.bytes;
  }
  if (list.empty()) std::printf("no copies in this machine's memory\n");
  if (bytes > 0) {
    std::printf("\"checkpoint remove_copies\" frees %s that no run needs\n",
                FormatBytes(bytes).c_str());
  }
  return 0;
}

// Without words those that are left over; else those of the runs that are named.
absl::StatusOr<int> RunRemoveCopies(const Words& words) {
  for (const std::string& word : words) {
    LS_RETURN_IF_ERROR(RemoveCopiesOf(UserPath(word)));
    std::printf("the copies of %s are removed\n", word.c_str());
  }
  if (!words.empty()) return 0;
  LS_ASSIGN_OR_RETURN(const std::vector<ListedCopies> list, ListCopies());
  int removed = 0;
  bool are_all_removed = true;
  for (const ListedCopies& copies : list) {
    if (!copies.is_left_over()) continue;
    const absl::Status done = RemoveLeftOver(copies);
    if (!done.ok()) {  // a program uses the run again
      std::fprintf(stderr, "%s\n", std::string(done.message()).c_str());
      are_all_removed = false;
      continue;
    }
    std::printf("%s is removed, %s %s\n", copies.folder.path.c_str(),
                FormatBytes(copies.folder.bytes).c_str(), AboutRun(copies).c_str());
    ++removed;
  }
  if (removed == 0 && are_all_removed) {
    std::printf("no copies in this machine's memory are left over\n");
  }
  return are_all_removed ? 0 : 1;
}

absl::StatusOr<int> Run(const Words& words) {
  struct Command {
    const char* name;
    const char* arguments;
    size_t least, most;
    absl::StatusOr<int> (*run)(const Words&);
  };
  static constexpr size_t kAny = 1000;
  const std::vector<Command> commands = {{"list", "RUN", 1, 1, RunList},
                                         {"verify", "CHECKPOINT...", 1, kAny, RunVerify},
                                         {"compare", "A B", 2, 2, RunCompare},
                                         {"reshape", "FROM FOLDER --shards N", 2, 2, RunReshape},
                                         {"copies", "", 0, 0, RunCopies},
                                         {"remove_copies", "[RUN...]", 0, kAny, RunRemoveCopies}};
  std::string usage;
  for (const Command& command : commands) {
    absl::StrAppend(&usage, "\n  checkpoint ", command.name, " ", command.arguments);
    if (words.empty() || words[0] != command.name) continue;
    const Words rest(words.begin() + 1, words.end());
    if (rest.size() >= command.least && rest.size() <= command.most) return command.run(rest);
    return InvalidArgument("use it so: checkpoint ", command.name, " ", command.arguments);
  }
  return InvalidArgument(
      words.empty() ? "no command" : absl::StrCat("no command \"", words[0], "\""),
      "; there are:", usage);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Lists, verifies, compares and reshapes checkpoints:\n\n"
                "  checkpoint list RUN                       the checkpoints of a run, the best\n"
                "                                            and those set aside as well\n"
                "  checkpoint verify CHECKPOINT...           each byte against its checksum\n"
                "  checkpoint compare A B                    tensor by tensor, of any meshes\n"
                "  checkpoint reshape FROM FOLDER --shards N written again in N files\n"
                "  checkpoint copies                         copies in this machine's memory\n"
                "  checkpoint remove_copies [RUN...]         those of runs that are gone or\n"
                "                                            complete; or of the runs named\n\n"
                "A run's directory stands for its newest checkpoint.",
       .files = {__FILE__},
       .words = lockstep::ProgramFlags::Words::kAny},
      lockstep::Run);
}
