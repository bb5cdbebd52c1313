// Bits that flip in runs that watch for them.
//
//   ./bazelw run //tools/bench:flips -- --flips 1000

#include <cstdio>
#include <filesystem>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "tools/bench/flips.h"

ABSL_FLAG(int64_t, flips, 1000, "how many bits flip, each in a run of its own");
ABSL_FLAG(uint64_t, seed, 1, "of the places");

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  std::string folder = std::filesystem::temp_directory_path() / "lockstep_flips_XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    std::perror("a folder for the runs");
    return 1;
  }
  const auto counts =
      lockstep::CountFlips(absl::GetFlag(FLAGS_flips), absl::GetFlag(FLAGS_seed), folder,
                           [](const lockstep::FlipCounts& so_far) {
                             if (so_far.flips % 50 == 0)
                               std::fprintf(stderr, "%s\n", ToString(so_far).c_str());
                           });
  std::filesystem::remove_all(folder);
  if (!counts.ok()) {
    std::fprintf(stderr, "%s\n", counts.status().ToString().c_str());
    return 1;
  }
  std::printf("%s\n", ToString(*counts).c_str());
  return counts->missed + counts->misnamed + counts->false_alarms == 0 ? 0 : 1;
}
