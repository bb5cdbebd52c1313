// Brings faults about in runs, and counts how these end.
//
//   ./bazelw run //tools/bench:faults
//   ./bazelw run //tools/bench:faults -- --kinds process_kills --count 20

#include <unistd.h>  // getpid

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "tools/bench/faults/bit_flips.h"
#include "tools/bench/faults/environment_faults.h"
#include "tools/bench/faults/fault_kind.h"
#include "tools/bench/faults/mesh_changes.h"
#include "tools/bench/faults/process_kills.h"
#include "tools/bench/faults/thread_losses.h"

ABSL_FLAG(std::string, kinds, "", "which, separated by commas; default: all");
ABSL_FLAG(int, count, 0, "faults of each kind; default: as many as the kind usually has");
ABSL_FLAG(uint64_t, seed, 1, "decides which faults come, where and when");
ABSL_FLAG(std::string, launcher, lockstep::FaultOptions().launcher,
          "of process_kills: command that starts {ranks} processes on this machine, such as \"srun "
          "--mpi=pmix -n {ranks} --kill-on-bad-exit=1\"");
ABSL_FLAG(std::string, folder, "/tmp", "where the runs' files go; they are removed at the end");

namespace lockstep {
namespace {

// All kinds, in the order in which they run.
std::vector<FaultKind> AllFaultKinds() {
  return {MeshChangesKind(),       ProcessKillsKind(), ThreadLossesKind(),
          EnvironmentFaultsKind(), BitFlipsKind(),     LastingFlipsKind()};
}

absl::StatusOr<std::vector<FaultKind>> ChosenKinds(const std::string& text) {
  const std::vector<FaultKind> all = AllFaultKinds();
  if (text.empty()) return all;
  std::vector<FaultKind> chosen;
  for (const auto part : absl::StrSplit(text, ',')) {
    const std::string name(part);
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const FaultKind& kind) { return kind.name == name; });
    if (found == all.end()) {
      const std::string names = absl::StrJoin(
          all, ", ", [](std::string* list, const FaultKind& kind) { list->append(kind.name); });
      return InvalidArgument("--kinds: there is no kind '", name, "'; use some of ", names);
    }
    chosen.push_back(*found);
  }
  return chosen;
}

std::string MedianText(std::vector<double> seconds) {
  if (seconds.empty()) return "";
  const auto middle = seconds.begin() + std::ssize(seconds) / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  return absl::StrCat("; the next step came after ", FormatDuration(*middle), " (median of ",
                      seconds.size(), ")");
}

absl::StatusOr<int> Run() {
  LS_RETURN_IF_ERROR(CheckRange("count", absl::GetFlag(FLAGS_count), 0, 1'000'000));
  LS_ASSIGN_OR_RETURN(const std::vector<FaultKind> kinds, ChosenKinds(absl::GetFlag(FLAGS_kinds)));
  const std::string folder =
      absl::StrCat(absl::GetFlag(FLAGS_folder), "/lockstep_faults.", getpid());
  size_t failures = 0;
  for (const FaultKind& kind : kinds) {
    std::printf("%s: %s\n", kind.name.c_str(), kind.meaning.c_str());
    std::fflush(stdout);
    const int count = absl::GetFlag(FLAGS_count);
    const absl::StatusOr<FaultCounts> counts =
        kind.run({.folder = absl::StrCat(folder, "/", kind.name),
                  .count = count == 0 ? kind.usual_count : count,
                  .seed = absl::GetFlag(FLAGS_seed),
                  .launcher = absl::GetFlag(FLAGS_launcher),
                  .progress = [](const std::string& line) {
                    std::fprintf(stderr, "  %s\n", line.c_str());
                  }});
    RemoveTree(folder);
    LS_RETURN_IF_ERROR(counts.status());
    for (const std::string& detail : counts->details) std::printf("  %s\n", detail.c_str());
    for (const std::string& failure : counts->failures) {
      std::printf("  FAILED: %s\n", failure.c_str());
    }
    std::printf("  %lld faults in %lld runs: %zu failures%s\n",
                static_cast<long long>(counts->faults), static_cast<long long>(counts->runs),
                counts->failures.size(), MedianText(counts->seconds_to_go_on).c_str());
    std::fflush(stdout);
    failures += counts->failures.size();
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Brings faults about in runs and counts how these end. Exit code 1: not all as "
                "they must.",
       .files = {__FILE__}},
      [](const auto&) { return lockstep::Run(); });
}
