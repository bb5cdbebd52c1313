// One step of a run, as its trace has it, drawn.
//
//   ./bazelw run //tools/timeline -- runs/gpt_markov/gpipe --step 3 --title 'A pipeline' --svg
//   out.svg
//
// The run is a folder that has a trace.json, or such a file. Without --step it is the last one that
// the run has traced, and the picture goes beside the trace.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "tools/experiment/outputs.h"
#include "tools/experiment/paths.h"
#include "tools/timeline/picture.h"
#include "tools/timeline/step_trace.h"

ABSL_FLAG(std::optional<int64_t>, step, std::nullopt,
          "which step; default: the last that was traced");
ABSL_FLAG(std::string, svg, "", "where the picture goes; default: timeline.svg beside the trace");
ABSL_FLAG(std::string, title, "", "above the picture; default: the name of the run's folder");

namespace lockstep {
namespace {

absl::StatusOr<int> Run(const std::vector<std::string>& words) {
  if (words.size() != 1) {
    return absl::InvalidArgumentError("name one run; --help lists what there is");
  }
  std::string path = UserPath(words[0]);
  if (IsDirectory(path)) absl::StrAppend(&path, "/trace.json");
  LS_ASSIGN_OR_RETURN(const std::string json, ReadFile(path));
  LS_ASSIGN_OR_RETURN(const StepTrace trace, ReadStepTrace(json, path, absl::GetFlag(FLAGS_step)));
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::string svg = absl::GetFlag(FLAGS_svg), title = absl::GetFlag(FLAGS_title);
  svg = svg.empty() ? (folder / "timeline.svg").string() : UserPath(svg);
  if (title.empty()) title = folder.filename().string();
  LS_RETURN_IF_ERROR(CheckOutputs({OutputThatBeginsWith(svg, "an SVG picture", "<svg")}, {path}));
  LS_RETURN_IF_ERROR(WriteOutput(svg, TimelinePicture(trace, title)));
  std::printf("timeline %s\n", svg.c_str());
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Draws one step of a run, a folder or its trace.json:\n\n  timeline RUN [options]",
       .files = {__FILE__, lockstep::kOverwriteFlagFile},
       .words = lockstep::ProgramFlags::Words::kAny},
      lockstep::Run);
}
