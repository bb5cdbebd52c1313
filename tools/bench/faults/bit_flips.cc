#include "tools/bench/faults/bit_flips.h"

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "tools/bench/flips.h"
#include "tools/bench/lasting_flips.h"

namespace lockstep {
namespace {

constexpr int64_t kFlipsOfLine = 50;  // of progress

// Tells of so many flips as a campaign does; `prefix` begins each line.
std::function<void(const FlipCounts&)> ProgressOf(const FaultOptions& options,
                                                  const std::string& prefix) {
  return [&options, prefix](const FlipCounts& so_far) {
    if (so_far.flips % kFlipsOfLine == 0) {
      options.progress(absl::StrCat(prefix, ToString(so_far)));
    }
  };
}

void Add(const FlipsByKind& kinds, const std::string& prefix, FaultCounts& counts) {
  for (const auto& [kind, its] : kinds) {
    counts.details.push_back(absl::StrCat(prefix, kind, ": ", ToString(its)));
    if (its.failures() > 0) counts.failures.push_back(counts.details.back());
    for (const std::string& wrong : its.wrong) {
      counts.details.push_back(absl::StrCat(prefix, wrong));
    }
    counts.faults += its.flips;
    counts.runs += its.flips + its.quiet_runs;
  }
}

absl::StatusOr<FaultCounts> FlipBits(const FaultOptions& options) {
  FaultCounts counts;
  // The two halves draw other places, and no other --seed has theirs.
  const std::pair<std::string, uint64_t> halves[] = {{"same_rank", 2 * options.seed},
                                                     {"other_rank", 2 * options.seed + 1}};
  for (const auto& [repeat_on, seed] : halves) {
    const std::string folder = absl::StrCat(options.folder, "/", repeat_on);
    LS_RETURN_IF_ERROR(MakeDirectories(folder));
    LS_ASSIGN_OR_RETURN(const FlipsByKind kinds,
                        CountFlips({.flips = (options.count + 1) / 2,
                                    .seed = seed,
                                    .folder = folder,
                                    .progress = ProgressOf(options, repeat_on + ": ")},
                                   repeat_on));
    Add(kinds, repeat_on + ", ", counts);
  }
  return counts;
}

absl::StatusOr<FaultCounts> FlipLastingBits(const FaultOptions& options) {
  LS_RETURN_IF_ERROR(MakeDirectories(options.folder));
  LS_ASSIGN_OR_RETURN(const FlipsByKind kinds,
                      CountLastingFlips({.flips = options.count,
                                         .seed = options.seed,
                                         .folder = options.folder,
                                         .progress = ProgressOf(options, "")}));
  FaultCounts counts;
  Add(kinds, "", counts);
  return counts;
}

}  // namespace

FaultKind BitFlipsKind() {
  return {.name = "flips",
          .meaning =
              "bits flip in state, activations, gradients, messages and checkpoints; with "
              "guard.every = 1 all that changed a result must be seen in their step, and nothing "
              "else, and no wrong rank be named",
          .usual_count = 1000,
          .run = FlipBits};
}

FaultKind LastingFlipsKind() {
  return {.name = "lasting_flips",
          .meaning =
              "processors go wrong for good, replicas part, and shards change beside their copies "
              "in memory; with guard.every = N all must be seen within N steps, and nothing else, "
              "and no wrong rank be named",
          .usual_count = 900,
          .run = FlipLastingBits};
}

}  // namespace lockstep
