#include "tools/bench/mpi_peer.h"

#include <filesystem>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/status.h"
#include "core/base/subprocess.h"
#include "tools/bench/core_binding.h"
#include "tools/experiment/paths.h"

namespace lockstep {
namespace {

constexpr char kLineStart[] = "mpi_collectives,";

// The first line that says something: Open MPI puts its messages between lines of dashes, and after
// those of the program.
std::string FirstWords(const std::string& text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (line.find_first_not_of("- ") != line.npos) return std::string(line);
  }
  return "it printed nothing";
}

}  // namespace

std::string MpiTimesLine(const TimedCall& call, double seconds) {
  return absl::StrCat(kLineStart, TimedName(call.operation), ",", call.bytes(), ",", seconds);
}

absl::StatusOr<MpiTimes> ParseMpiTimes(const std::string& output) {
  MpiTimes times;
  for (const absl::string_view line : absl::StrSplit(output, '\n')) {
    absl::string_view rest = line;
    if (!absl::ConsumePrefix(&rest, kLineStart)) continue;
    const std::vector<std::string> cells = absl::StrSplit(rest, ',');
    int64_t bytes = 0;
    double seconds = 0;
    if (cells.size() != 3 || !absl::SimpleAtoi(cells[1], &bytes) ||
        !absl::SimpleAtod(cells[2], &seconds)) {
      return absl::DataLossError(absl::StrCat("not a line of mpi_collectives: ", line));
    }
    times[{cells[0], bytes}] = seconds;
  }
  return times;
}

double SecondsOf(const TimedCall& call, const MpiTimes& times) {
  const auto found = times.find({TimedName(call.operation), call.bytes()});
  return found == times.end() ? 0 : found->second;
}

absl::StatusOr<std::string> FindMpirun(const std::string& path) {
  if (std::string found = FindOnPath(path.empty() ? "mpirun" : path); !found.empty()) return found;
  return absl::NotFoundError(path.empty() ? "no mpirun on PATH (Debian: openmpi-bin, or --mpirun)"
                                          : absl::StrCat("'", path, "' is no program (--mpirun)"));
}

absl::StatusOr<MpiTimes> RunMpi(const std::string& mpirun, const Sweep& sweep, int ranks) {
  // It is built beside this program.
  LS_ASSIGN_OR_RETURN(const std::string own, OwnProgram());
  const std::string program =
      (std::filesystem::path(own).parent_path() / "mpi_collectives").string();
  if (FindOnPath(program).empty()) return absl::NotFoundError(absl::StrCat("no program ", program));
  std::vector<std::string> arguments = {
      mpirun, "-n", absl::StrCat(ranks), "--allow-run-as-root",
      "--oversubscribe",  // lets more ranks than cores start, and changes nothing for others
      "--bind-to", ranks <= AvailableCores() ? "hwthread" : "none",
      // Shared memory alone, without a search for networks that are not there.
      "--mca", "pml", "ob1", "--mca", "btl", "self,vader", program};
  for (std::string& argument : SweepArguments(sweep, ranks)) {
    arguments.push_back(std::move(argument));
  }
  LS_ASSIGN_OR_RETURN(const ProcessResult result, RunProcess({.arguments = arguments}));
  if (result.interrupted) return absl::CancelledError("interrupted");
  if (!result.ok()) {
    return absl::AbortedError(
        absl::StrCat("mpirun ended with ", result.Describe(), ": ", FirstWords(result.err)));
  }
  return ParseMpiTimes(result.out);
}

}  // namespace lockstep
