// The files that a program writes for its user: never its inputs, never each other, never what is
// no regular file, and no file of another kind unless --overwrite says so.

#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace lockstep {

// For ProgramFlags::files: where the flag --overwrite is defined.
inline constexpr char kOverwriteFlagFile[] = "tools/experiment/outputs.cc";

struct OutputFile {
  std::string path;  // absolute, as UserPath makes it
  std::string kind;  // "an SVG picture"
  // Whether the contents of a file are of this kind, so that it may be replaced. Not asked for an
  // empty file. No function: no file is replaced.
  std::function<bool(std::string_view contents)> is_of_kind = nullptr;
};

// An output whose files begin with `beginning`.
OutputFile OutputThatBeginsWith(std::string path, std::string kind, std::string beginning);

// Checks, before a program does its work, that it may write these files. FailedPrecondition names
// the file that it may not write, and says what to do.
absl::Status CheckOutputs(const std::vector<OutputFile>& outputs,
                          const std::vector<std::string>& inputs = {});

}  // namespace lockstep
