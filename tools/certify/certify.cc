// Holds a workload's first steps to the same bits under every preset, on several meshes, numbers of
// threads and backends. An experiment's :certify calls it (//experiments:experiment.bzl):
//
//   certify --mpirun=SCRIPT PRESET=PROGRAM... -- [ARGUMENT FOR EACH PROGRAM]...
//
// The first program is the reference, on its default mesh. The flags below are its own wherever
// they stand; the other arguments behind the `--` are for each program.

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/clock.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/base/subprocess.h"
#include "core/base/user_path.h"
#include "tools/certify/plan.h"
#include "tools/certify/run_bits.h"
#include "tools/certify/table.h"
#include "tools/experiment/paths.h"

ABSL_FLAG(int64_t, steps, 100, "steps of each run");
ABSL_FLAG(std::vector<std::string>, presets, {}, "these alone beside the reference; default: all");
ABSL_FLAG(int64_t, ranks, 8, "of the largest mesh");
ABSL_FLAG(std::vector<std::string>, threads, (std::vector<std::string>{"1", "3"}),
          "numbers of threads of a rank");
ABSL_FLAG(std::vector<std::string>, backends, (std::vector<std::string>{"threads", "mpi"}),
          "what ranks are: threads, or mpi: processes that mpirun starts");
ABSL_FLAG(std::string, mpirun, "",
          "script that runs SCRIPT RANKS PROGRAM ARGUMENT... (build_defs/mpi_test.sh)");
ABSL_FLAG(std::string, out, "", "keeps the run directories there; default: they are deleted");

namespace lockstep {
namespace {

constexpr int kInterruptedExitCode = 130;  // as a shell tells of SIGINT
constexpr int64_t kMostRanks = 64, kMostThreads = 256;

struct Program {
  std::string preset, path;
};

// What --set says to each run.
std::vector<std::string> CommonAssignments() {
  return {absl::StrCat("train.steps=", absl::GetFlag(FLAGS_steps)),
          "hashes.every=1",
          "validation.every=0",
          "validation.batches=1",
          "validation.at_start=false",
          "checkpoint.every=0",
          "checkpoint.keep=0",
          "trace.steps=0"};
}

class Certification {
 public:
  Certification(std::vector<Program> programs, std::vector<std::string> arguments)
      : programs_(std::move(programs)), arguments_(std::move(arguments)) {
    Set(CommonAssignments(), arguments_);
  }

  absl::StatusOr<int> Run() {
    LS_RETURN_IF_ERROR(ReadLimits());
    LS_RETURN_IF_ERROR(MakePlan());
    LS_ASSIGN_OR_RETURN(const TemporaryDirectory scratch, TemporaryDirectory::Create());
    const std::string out = absl::GetFlag(FLAGS_out);
    return RunAll(out.empty() ? scratch.path() : UserPath(out));
  }

 private:
  static void Set(const std::vector<std::string>& assignments,
                  std::vector<std::string>& arguments) {
    for (const std::string& assignment : assignments) {
      arguments.insert(arguments.end(), {"--set", assignment});
    }
  }

  const Program& reference() const { return programs_[0]; }

  // Runs `launcher`, a program and its arguments.
  static absl::StatusOr<ProcessResult> Start(std::vector<std::string> launcher,
                                             const Program& program,
                                             const std::vector<std::string>& arguments) {
    launcher.push_back(program.path);
    launcher.insert(launcher.end(), arguments.begin(), arguments.end());
    return RunProcess({.arguments = std::move(launcher)});
  }

  // What a program said when it failed.
  static std::string Said(const ProcessResult& result) {
    return absl::StrCat(result.Describe(), ": ", absl::StripAsciiWhitespace(result.err));
  }

  // What the program writes for --print_config; InvalidArgument where it refuses these settings.
  absl::StatusOr<std::string> Listing(const Program& program,
                                      const std::vector<std::string>& assignments) const {
    std::vector<std::string> arguments = arguments_;
    Set(assignments, arguments);
    arguments.push_back("--print_config");
    LS_ASSIGN_OR_RETURN(const ProcessResult result, Start({}, program, arguments));
    if (result.interrupted) return absl::CancelledError("interrupted");
    if (result.ok()) return result.out;
    const auto message = absl::StripAsciiWhitespace(result.err);
    if (result.exit_code == 1 && !message.empty()) return absl::InvalidArgumentError(message);
    return absl::AbortedError(absl::StrCat(program.path, ": ", Said(result)));
  }

  // From the flags, and from the reference's configuration, whose cut all runs are given.
  absl::Status ReadLimits() {
    LS_RETURN_IF_ERROR(CheckRange("steps", absl::GetFlag(FLAGS_steps), 1, int64_t{1} << 40));
    limits_.ranks = absl::GetFlag(FLAGS_ranks);
    LS_RETURN_IF_ERROR(CheckRange("ranks", limits_.ranks, 1, kMostRanks));
    limits_.threads.clear();
    for (const std::string& text : absl::GetFlag(FLAGS_threads)) {
      int64_t threads = 0;
      if (!absl::SimpleAtoi(text, &threads)) threads = 0;
      LS_RETURN_IF_ERROR(CheckRange("threads", threads, 1, kMostThreads));
      limits_.threads.push_back(threads);
    }
    limits_.backends.clear();
    for (const std::string& text : absl::GetFlag(FLAGS_backends)) {
      const Backend backend = text == Name(Backend::kMpi) ? Backend::kMpi : Backend::kThreads;
      if (text != Name(backend)) {
        return InvalidArgument("--backends ", text,
                               ": there is no such backend; use threads or mpi");
      }
      limits_.backends.push_back(backend);
      if (backend == Backend::kMpi && absl::GetFlag(FLAGS_mpirun).empty()) {
        return absl::InvalidArgumentError("--backends mpi needs --mpirun, which starts processes");
      }
    }
    LS_ASSIGN_OR_RETURN(const std::string listing, Listing(reference(), {}));
    LS_ASSIGN_OR_RETURN(const PresetMesh preset, ReadPresetMesh(reference().preset, listing));
    limits_.shards = preset.shards;
    limits_.tokens = preset.tokens;
    limits_.features = preset.features;
    cut_ = preset.cut;
    Set(cut_, arguments_);
    return absl::OkStatus();
  }

  absl::Status MakePlan() {
    std::set<std::string> unknown;
    for (const std::string& preset : absl::GetFlag(FLAGS_presets)) unknown.insert(preset);
    const bool all = unknown.empty();
    for (const Program& program : programs_) {
      const bool is_chosen = unknown.erase(program.preset) > 0;
      if (!all && !is_chosen && program.path != reference().path) continue;
      LS_RETURN_IF_ERROR(AddPreset(program));
    }
    if (unknown.empty()) return absl::OkStatus();
    const auto name = [](std::string* text, const Program& program) { *text += program.preset; };
    return InvalidArgument("--presets ", *unknown.begin(), ": the workload has ",
                           absl::StrJoin(programs_, ", ", name));
  }

  // Asks a preset's program which meshes it takes.
  absl::Status AddPreset(const Program& program) {
    absl::StatusOr<std::string> listing = Listing(program, {});
    if (absl::IsInvalidArgument(listing.status())) {  // one of its other meshes may fit
      plan_.left_out.push_back(
          {.preset = program.preset, .reason = std::string(listing.status().message())});
      listing =
          Listing(program, {"mesh.replicas=1", "mesh.dp=1", "mesh.cp=1", "mesh.tp=1", "mesh.ep=1"});
      if (absl::IsInvalidArgument(listing.status())) return absl::OkStatus();
    }
    LS_RETURN_IF_ERROR(listing.status());
    LS_ASSIGN_OR_RETURN(const PresetMesh preset, ReadPresetMesh(program.preset, *listing));
    absl::Status failure;
    Plan plan = PlanOf(preset, limits_, [&](const MeshShape& mesh) -> absl::Status {
      const PlannedMesh run = {.preset = program.preset, .mesh = mesh};
      const absl::StatusOr<std::string> of_mesh = Listing(program, run.assignments());
      if (!of_mesh.ok() && !absl::IsInvalidArgument(of_mesh.status())) failure = of_mesh.status();
      return of_mesh.status();
    });
    for (PlannedMesh& run : plan.runs) plan_.runs.push_back(std::move(run));
    for (LeftOut& entry : plan.left_out) plan_.left_out.push_back(std::move(entry));
    return failure;
  }

  absl::StatusOr<ProcessResult> Train(const PlannedMesh& run, const std::string& out) const {
    std::vector<std::string> arguments = arguments_, launcher;
    Set(run.assignments(), arguments);
    arguments.insert(arguments.end(), {"--out", out});
    if (run.backend == Backend::kMpi) {
      launcher = {absl::GetFlag(FLAGS_mpirun), absl::StrCat(run.ranks())};
    }
    const auto program =
        std::find_if(programs_.begin(), programs_.end(),
                     [&run](const Program& other) { return other.preset == run.preset; });
    return Start(std::move(launcher), *program, arguments);
  }

  absl::StatusOr<int> RunAll(const std::string& out) const {
    const CertificateTable table(plan_.runs);
    std::printf("%s%zu runs of %ld steps with %s\n\n%s", LeftOutText(plan_.left_out).c_str(),
                plan_.runs.size(), static_cast<long>(absl::GetFlag(FLAGS_steps)),
                absl::StrJoin(cut_, ", ").c_str(), table.Header().c_str());
    const int64_t begin = NowNanos();
    std::vector<StepBits> expected;
    for (const PlannedMesh& run : plan_.runs) {
      std::fputs(table.Begin(run).c_str(), stdout);
      std::fflush(stdout);
      const std::string directory = absl::StrCat(out, "/", run.ToString());
      const auto failed = [&run](const absl::Status& status) {
        std::puts("  FAILED");
        return Annotate(status, run.ToString());
      };
      const absl::StatusOr<ProcessResult> trained = Train(run, directory);
      if (!trained.ok()) return failed(trained.status());
      if (trained->interrupted) return kInterruptedExitCode;
      if (!trained->ok()) return failed(absl::AbortedError(Said(*trained)));
      const absl::StatusOr<std::vector<StepBits>> bits = ReadRunBits(directory);
      if (!bits.ok()) return failed(bits.status());
      const bool is_reference = expected.empty();
      if (is_reference) expected = *bits;
      const std::optional<BitsDifference> difference = FirstDifference(*bits, expected);
      std::fputs(CertificateTable::End(DigestOf(*bits), difference     ? "DIFFERS"
                                                        : is_reference ? "reference"
                                                                       : "same")
                     .c_str(),
                 stdout);
      if (!difference) continue;
      std::printf("\n%s parts from %s\nat %s\n", run.ToString().c_str(),
                  plan_.runs[0].ToString().c_str(), difference->ToString().c_str());
      return 1;
    }
    std::printf(
        "\nall %zu runs have the same bits in all %zu steps: losses, gradient norms and %zu "
        "tensors (%s)\n",
        plan_.runs.size(), expected.size(), expected.back().tensors.size(),
        FormatDuration(SecondsSince(begin)).c_str());
    return 0;
  }

  const std::vector<Program> programs_;
  std::vector<std::string> arguments_, cut_;
  PlanLimits limits_;
  Plan plan_;
};

absl::StatusOr<int> RunMain(const std::vector<std::string>& words) {
  std::vector<Program> programs;
  auto word = words.begin();
  for (; word != words.end() && *word != "--"; ++word) {
    const size_t equals = word->find('=');
    if (equals == std::string::npos) {
      return InvalidArgument("'", *word,
                             "' is no PRESET=PROGRAM; what is for the programs stands behind "
                             "--");
    }
    programs.push_back({word->substr(0, equals), word->substr(equals + 1)});
  }
  if (programs.empty()) {
    return absl::InvalidArgumentError(
        "name the programs; start this as //experiments/<workload>:certify");
  }
  if (word != words.end()) ++word;
  return Certification(std::move(programs), {word, words.end()}).Run();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage =
           "Runs the first steps of a workload under every preset, on several meshes, numbers "
           "of threads and\nbackends, and compares losses, gradient norms and all tensors after "
           "every step to the bit.\nThe exit code is 1 at the first run that differs, which is "
           "named with the step and the tensor.\nEverything but these flags, such as --set "
           "cut.features=2 or --data DIR, is for each preset's program.",
       .files = {__FILE__},
       .words = lockstep::ProgramFlags::Words::kPassedOn},
      lockstep::RunMain);
}
