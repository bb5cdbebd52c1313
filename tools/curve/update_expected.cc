// Makes the curve anew that an experiment keeps; its :update_expected calls it
// (//experiments:experiment.bzl):
//
//   update_expected FILE PROGRAM [ARGUMENT FOR THE PROGRAM]...
//
// FILE counts from the top of the source tree; PROGRAM runs `single` over the whole workload. The
// file is replaced when the run has come to its end.

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/file.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/base/subprocess.h"
#include "core/base/user_path.h"
#include "core/report/metrics.h"
#include "tools/curve/curve_check.h"
#include "tools/experiment/run_record.h"
#include "tools/experiment/source_tree.h"

namespace lockstep {
namespace {

constexpr char kReminder[] =
    "This curve is what all strategies are held to. Rule out a regression before you keep another "
    "one:\nwhich change moved it, was it meant to, and does the workload still learn what it "
    "did?\n";

std::string Change(const absl::StatusOr<std::vector<LossPoint>>& before,
                   const std::vector<LossPoint>& now) {
  if (!before.ok()) return "there was no curve before";
  const CurveComparison comparison = CompareCurves(now, *before, 0);
  std::string change = absl::StrFormat("%d steps, %d before", now.size(), before->size());
  if (!comparison.largest) return change + "; no difference where both have values";
  return absl::StrCat(change, "\n  first difference:   ", comparison.first_outside->ToString(),
                      "\n  largest difference: ", comparison.largest->ToString());
}

absl::StatusOr<int> RunMain(const std::vector<std::string>& words) {
  if (words.size() < 2) {
    return absl::InvalidArgumentError("name the file and the program; --help says more");
  }
  LS_ASSIGN_OR_RETURN(const std::string tree, SourceTree());
  const std::string path = (std::filesystem::path(tree) / words[0]).string();
  const std::string workload = std::filesystem::path(words[0]).parent_path().filename().string();
  const std::string out = UserPath(absl::StrCat("runs/", workload, "/expected"));
  std::fprintf(stderr, "%s\n", kReminder);

  std::vector<std::string> arguments(words.begin() + 1, words.end());
  arguments.insert(arguments.end(), {"--out", out});
  LS_ASSIGN_OR_RETURN(const ProcessResult result,
                      RunProcess({.arguments = arguments,
                                  .out = ProcessOptions::Stream::kInherit,
                                  .err = ProcessOptions::Stream::kInherit}));
  if (!result.ok()) {
    return absl::AbortedError(
        absl::StrCat(path, " stays as it was: the run ended with ", result.Describe()));
  }
  const RunRecord run = ReadRunRecord(out);
  if (!run.complete()) {
    return absl::AbortedError(absl::StrCat(path, " stays as it was: ", out, ": ", run.problem));
  }
  const auto before = ReadLossCurve(path);
  LS_ASSIGN_OR_RETURN(const std::string curve, ReadFile(out + "/losses.csv"));
  LS_RETURN_IF_ERROR(WriteFileAtomically(path, curve));
  std::printf("\n%s: %s\n\n%s", path.c_str(), Change(before, run.losses).c_str(), kReminder);
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Makes the curve anew that an experiment keeps:\n\n"
                "  update_expected FILE PROGRAM [ARGUMENT FOR THE PROGRAM]...",
       .words = lockstep::ProgramFlags::Words::kPassedOn},
      lockstep::RunMain);
}
