#include "tools/curve/first_tensor.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/probe/probed_run.h"
#include "tools/divergence/divergence.h"
#include "tools/divergence/divergence_report.h"
#include "tools/divergence/judgement.h"

namespace lockstep {
namespace {

// Trains in the scratch folder, and keeps what //tools/divergence reads of the run.
absl::StatusOr<ProbedRun> RunProbed(const StrategyCheckOptions& options, const std::string& program,
                                    const std::vector<std::string>& assignments,
                                    const std::string& folder) {
  const std::string out = options.scratch + "/probed";
  LS_RETURN_IF_ERROR(RunForCheck(options, program, out, assignments).status());
  LS_ASSIGN_OR_RETURN(std::vector<std::string> files, ListFolder(out + "/probes"));
  for (std::string& file : files) file = "probes/" + file;
  files.push_back("config.toml");
  LS_RETURN_IF_ERROR(MakeDirectories(folder + "/probes"));
  for (const std::string& file : files) {
    LS_ASSIGN_OR_RETURN(const std::string contents, ReadFile(absl::StrCat(out, "/", file)));
    LS_RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(folder, "/", file), contents));
  }
  RemoveTree(out);
  return ReadProbedRun(folder);
}

std::vector<std::string> Hashes(int64_t steps) { return {absl::StrCat("probe.steps=", steps)}; }

// The step of the difference and the one before it, since a tensor may be an old one. The place of
// a number, or of what belongs to no layer, is recorded whatever the pattern says.
std::vector<std::string> Values(const ProbedRun& run, const Difference& first) {
  const ProbeKey& key = first.key();
  const int64_t before = std::min<int64_t>(key.step, 1);
  const std::vector<std::string>& blocks = run.header().blocks;
  const std::string place = ParameterOf(key.place);
  const bool is_in_model =
      std::any_of(blocks.begin(), blocks.end(), [&place](const std::string& block) {
        return place == block || place.starts_with(block + ".");
      });
  return {absl::StrCat("probe.first_step=", key.step - before),
          absl::StrCat("probe.steps=", before + 1), "probe.values=true",
          absl::StrCat("probe.places=[\"", is_in_model ? place : blocks.front(), "\"]")};
}

}  // namespace

absl::StatusOr<Report> FindFirstTensor(const StrategyCheckOptions& options,
                                       const ProgramPair& programs, const std::string& folder) {
  StrategyCheckOptions probed = options;
  probed.steps = programs.last_step + 1;
  const auto run = [&](const std::string& program, const std::vector<std::string>& assignments,
                       const std::string& name) {
    return RunProbed(probed, program, assignments, absl::StrCat(folder, "/", name));
  };
  LS_ASSIGN_OR_RETURN(const ProbedRun a, run(programs.a, Hashes(probed.steps), "a"));
  LS_ASSIGN_OR_RETURN(const ProbedRun b, run(programs.b, Hashes(probed.steps), "b"));
  LS_ASSIGN_OR_RETURN(const Divergence divergence, FindDivergence(a, b));
  Judgement judgement;
  if (!divergence.differences.empty()) {
    const std::vector<std::string> values = Values(a, divergence.differences.front());
    probed.steps = divergence.differences.front().key().step + 1;
    LS_ASSIGN_OR_RETURN(const ProbedRun a_values, run(programs.a, values, "a.values"));
    LS_ASSIGN_OR_RETURN(const ProbedRun b_values, run(programs.b, values, "b.values"));
    LS_ASSIGN_OR_RETURN(const Divergence again, FindDivergence(a_values, b_values));
    const bool is_same = !again.differences.empty() &&
                         again.differences.front().key() == divergence.differences.front().key();
    // Programs that part elsewhere each time are judged by their hashes.
    LS_ASSIGN_OR_RETURN(judgement, is_same ? Judge(a_values, b_values, again.differences.front())
                                           : Judge(a, b, divergence.differences.front()));
  }
  return DivergenceReport(a, b, divergence, judgement);
}

absl::Status LeaveProbes(const StrategyCheckOptions& options, const std::string& program,
                         int64_t last_step, const std::string& folder) {
  StrategyCheckOptions probed = options;
  probed.steps = last_step + 1;
  return RunProbed(probed, program, Hashes(probed.steps), folder).status();
}

}  // namespace lockstep
