// Finds the commit that moved a workload's curve:
//
//   ./bazelw run //tools/curve:bisect -- --good v1.2 --workload gpt_markov --strategy ddp
//
// The search works on commits, in a temporary work tree; the user's checkout is not touched.

#include <pthread.h>  // pthread_sigmask

#include <csignal>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "tools/curve/bisection.h"
#include "tools/experiment/outputs.h"
#include "tools/experiment/source_tree.h"
#include "tools/report/text.h"
#include "tools/report/write_page.h"

ABSL_FLAG(std::string, good, "", "revision whose curve is the one that was meant");
ABSL_FLAG(std::string, bad, "", "revision whose curve is another one; default: HEAD");
ABSL_FLAG(std::string, workload, "", "a folder of experiments/");
ABSL_FLAG(std::string, strategy, "single", "one of the workload's strategies");
ABSL_FLAG(int64_t, steps, 20, "how many steps are run and compared");
ABSL_FLAG(bool, first_parent, false, "tries commits of the main line alone: merges stand whole");
ABSL_FLAG(std::string, disk_cache, "",
          "Bazel's disk cache for the builds; default: the one that your .bazelrc names, if any");
ABSL_FLAG(std::string, repository, "", "the checkout; default: the one that this was started from");
ABSL_FLAG(std::string, html, "", "writes the report as a page, too");

namespace lockstep {
namespace {

constexpr int kInterruptedExitCode = 130;  // as a shell tells of SIGINT
constexpr int64_t kMostSteps = 1'000'000;

// Holds SIGINT and SIGTERM back from this thread while it lives. A program that we wait for gets
// those that come, or that have come before (Subprocess), so that a search ends there and tidies
// up.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGINT);
    sigaddset(&held, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &held, &before_);
  }
  ~HeldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  sigset_t before_;
};

absl::StatusOr<int> Run(const std::vector<std::string>& arguments) {
  for (const auto& [name, value] : {std::pair("good", absl::GetFlag(FLAGS_good)),
                                    std::pair("workload", absl::GetFlag(FLAGS_workload))}) {
    if (value.empty()) return InvalidArgument("--", name, " is needed; --help says what it is");
  }
  LS_RETURN_IF_ERROR(CheckRange("steps", absl::GetFlag(FLAGS_steps), 1, kMostSteps));
  std::string repository = absl::GetFlag(FLAGS_repository);
  if (repository.empty()) {
    LS_ASSIGN_OR_RETURN(repository, SourceTree());
  } else {
    repository = UserPath(repository);
  }
  const std::string html = absl::GetFlag(FLAGS_html);
  if (!html.empty()) {
    LS_RETURN_IF_ERROR(
        CheckOutputs({OutputThatBeginsWith(UserPath(html), "an HTML page", "<!DOCTYPE html>")}));
  }
  const HeldSignals held;
  const std::string cache = absl::GetFlag(FLAGS_disk_cache);
  const absl::StatusOr<Report> report =
      Bisect({.repository = repository,
              .good = absl::GetFlag(FLAGS_good),
              .bad = absl::GetFlag(FLAGS_bad),
              .workload = absl::GetFlag(FLAGS_workload),
              .strategy = absl::GetFlag(FLAGS_strategy),
              .steps = absl::GetFlag(FLAGS_steps),
              .walk = absl::GetFlag(FLAGS_first_parent) ? HistoryWalk::kFirstParent
                                                        : HistoryWalk::kAllCommits,
              .disk_cache = cache.empty() ? "" : UserPath(cache),
              .arguments = arguments},
             {.say = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }});
  if (absl::IsCancelled(report.status())) {
    std::fputs("interrupted; nothing is left behind\n", stderr);
    return kInterruptedExitCode;
  }
  LS_RETURN_IF_ERROR(report.status());
  std::fputs(TextOf(*report).c_str(), stdout);
  if (html.empty()) return 0;
  LS_RETURN_IF_ERROR(WritePage(*report, "report", UserPath(html), Pictures::kNone));
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage =
           "Finds the commit that moved a workload's curve, and the first tensor that it changed:\n"
           "\n  bisect --good REV --workload W --strategy S [options] [-- ARGUMENT FOR EACH RUN "
           "...]\n\nCommits are built and run in a temporary work tree, and their losses compared "
           "to the bit. Those that do\nnot build or run are skipped. What stands behind the second "
           "--, such as --set KEY=VALUE or --data DIR, is\nfor the workload's program.",
       .files = {__FILE__, lockstep::kOverwriteFlagFile},
       .words = lockstep::ProgramFlags::Words::kAny},
      lockstep::Run);
}
