// Tries what users, machines and accidents do to configurations and files, by the thousand:
//
//   ./bazelw run //tools/hostile -- --tries 100000 --seed 7
//   ./bazelw run //tools/hostile -- --target checkpoint --only 1234567
//
// A try fails on a signal, an internal error, no end within the limit, or a message that is none or
// too long. Failures are printed with the seed that makes them again; a seed that once failed is
// kept in kept_seeds.h, which the test tries first.

#include <unistd.h>  // isatty

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "tools/experiment/paths.h"
#include "tools/hostile/tries.h"

ABSL_FLAG(int64_t, tries, 2000, "how many");
ABSL_FLAG(uint64_t, seed, 1, "of the tries' seeds");
ABSL_FLAG(std::string, target, "", "one target alone; default: all in turn");
ABSL_FLAG(std::optional<uint64_t>, only, std::nullopt, "the seed of one try of --target");

namespace lockstep {
namespace {

absl::StatusOr<std::vector<HostileTry>> Plan() {
  const std::string target = absl::GetFlag(FLAGS_target);
  const std::optional<uint64_t> only = absl::GetFlag(FLAGS_only);
  LS_RETURN_IF_ERROR(CheckRange("tries", absl::GetFlag(FLAGS_tries), 1, 100'000'000));
  if (only && target.empty()) return InvalidArgument("--only goes with --target");
  LS_ASSIGN_OR_RETURN(
      std::vector<HostileTry> tries,
      PlanTries(absl::GetFlag(FLAGS_seed), only ? 1 : absl::GetFlag(FLAGS_tries), target));
  if (only) tries[0].seed = *only;
  return tries;
}

absl::StatusOr<int> Run(const std::vector<std::string>& /*words*/) {
  LS_ASSIGN_OR_RETURN(const std::vector<HostileTry> tries, Plan());
  LS_ASSIGN_OR_RETURN(const TemporaryDirectory scratch, TemporaryDirectory::Create());
  const bool is_terminal = isatty(STDERR_FILENO) == 1;
  const int64_t begin = NowNanos();
  const auto show = [&](size_t done) {
    if (is_terminal) std::fprintf(stderr, "\r%zu of %zu ", done, tries.size());
  };
  LS_ASSIGN_OR_RETURN(const std::vector<HostileFailure> failures,
                      MakeTries(tries, {.folder = scratch.path()}, show));
  for (const HostileFailure& failure : failures) {
    std::printf("{\"%s\", %lluu},  // %s\n", failure.attempt.target.c_str(),
                static_cast<unsigned long long>(failure.attempt.seed), failure.what.c_str());
  }
  std::printf("%zu tries in %s, %zu failed\n", tries.size(),
              FormatDuration(SecondsSince(begin)).c_str(), failures.size());
  return failures.empty() ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Tries mutated configurations and files, and prints those that end badly.",
       .files = {__FILE__}},
      lockstep::Run);
}
