// One step of a run, as its trace has it, drawn.
//
//   ./bazelw run //tools/timeline -- runs/gpt_markov/gpipe --step 3 --title 'A pipeline' --svg
//   out.svg
//
// The run is a folder that has a trace.json, or such a file. Without --step it is the last one that
// the run has traced, and the picture goes beside the trace.

#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "tools/arguments/arguments.h"
#include "tools/timeline/picture.h"
#include "tools/timeline/step_trace.h"

namespace lockstep {
namespace {

constexpr char kUsage[] =
    "usage: timeline RUN [--step N] [--title TEXT] [--svg PATH]\n"
    "  RUN      a run's folder, or its trace.json\n"
    "  --step   which one; default: the last that was traced\n"
    "  --svg    where the picture goes; default: timeline.svg beside the trace\n";

absl::Status Run(const std::vector<std::string>& command_line) {
  LS_ASSIGN_OR_RETURN(const Arguments arguments,
                      Arguments::Parse(command_line, {{"--help", FlagKind::kSwitch},
                                                      {"--step", FlagKind::kValue},
                                                      {"--svg", FlagKind::kValue},
                                                      {"--title", FlagKind::kValue}}));
  if (arguments.Has("--help")) {
    std::fputs(kUsage, stdout);
    return absl::OkStatus();
  }
  if (arguments.words().size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("name one run\n", kUsage));
  }
  std::string path = UserPath(arguments.words()[0]);
  if (std::filesystem::is_directory(path)) absl::StrAppend(&path, "/trace.json");
  LS_ASSIGN_OR_RETURN(const std::string json, ReadFile(path));
  std::optional<int64_t> step;
  if (arguments.Has("--step")) {
    LS_ASSIGN_OR_RETURN(step, arguments.Whole("--step", 0, std::numeric_limits<int>::max(), 0));
  }
  LS_ASSIGN_OR_RETURN(const StepTrace trace, ReadStepTrace(json, path, step));
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const std::string svg = arguments.Has("--svg") ? UserPath(arguments.Value("--svg"))
                                                 : (folder / "timeline.svg").string();
  LS_RETURN_IF_ERROR(MakeDirectories(std::filesystem::path(svg).parent_path().string()));
  LS_RETURN_IF_ERROR(WriteFileAtomically(
      svg, TimelinePicture(trace, arguments.Value("--title", folder.filename().string()))));
  std::printf("timeline %s\n", svg.c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const absl::Status status = lockstep::Run({argv + 1, argv + argc});
  if (status.ok()) return 0;
  lockstep::PrintError(status);
  return 1;
}
