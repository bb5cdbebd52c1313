// Bits that flip in runs that watch for them.
//
//   ./bazelw run //tools/bench:flips -- --flips 1000

#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "tools/bench/flips.h"
#include "tools/experiment/paths.h"

ABSL_FLAG(int64_t, flips, 1000, "how many bits flip, each in a run of its own");
ABSL_FLAG(uint64_t, seed, 1, "of the places");
ABSL_FLAG(std::string, repeat_on, "same_rank", "as guard.repeat_on: same_rank or other_rank");

namespace lockstep {
namespace {

void ShowProgress(const FlipCounts& so_far) {
  if (so_far.flips % 50 == 0) std::fprintf(stderr, "%s\n", ToString(so_far).c_str());
}

absl::StatusOr<int> RunBenchmark() {
  LS_ASSIGN_OR_RETURN(const TemporaryDirectory folder, TemporaryDirectory::Create());
  LS_ASSIGN_OR_RETURN(const FlipsByKind counts, CountFlips({.flips = absl::GetFlag(FLAGS_flips),
                                                            .seed = absl::GetFlag(FLAGS_seed),
                                                            .folder = folder.path(),
                                                            .progress = ShowProgress},
                                                           absl::GetFlag(FLAGS_repeat_on)));
  for (const auto& [kind, its] : counts) {
    std::printf("%s: %s\n", kind.c_str(), ToString(its).c_str());
  }
  const FlipCounts total = Total(counts);
  for (const std::string& wrong : total.wrong) std::printf("FAILED: %s\n", wrong.c_str());
  std::printf("all: %s\n", ToString(total).c_str());
  return total.failures() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(argc, argv,
                              {.usage = "Flips bits in runs that watch for them, and counts which "
                                        "are seen; see docs/checkpoints.md.",
                               .files = {__FILE__}},
                              [](const auto&) { return lockstep::RunBenchmark(); });
}
