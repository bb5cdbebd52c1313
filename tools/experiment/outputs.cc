#include "tools/experiment/outputs.h"

#include <fcntl.h>  // O_RDONLY
#include <sys/stat.h>

#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"

ABSL_FLAG(bool, overwrite, false, "replace output files, whatever is in them");

namespace lockstep {
namespace {

// Whether two paths name one file, or would.
bool AreSame(const std::string& a, const std::string& b) {
  struct stat first, second;
  if (stat(a.c_str(), &first) != 0 || stat(b.c_str(), &second) != 0) return a == b;
  return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

absl::Status CheckReplaced(const OutputFile& output) {
  if (!PathExists(output.path)) return absl::OkStatus();
  // What is no regular file is refused by its name.
  LS_RETURN_IF_ERROR(Annotate(OpenRegularFile(output.path, O_RDONLY).status(),
                              absl::StrCat("the output \"", output.path, "\"")));
  if (absl::GetFlag(FLAGS_overwrite)) return absl::OkStatus();
  LS_ASSIGN_OR_RETURN(const std::string contents, ReadFile(output.path));
  if (contents.empty() || (output.is_of_kind && output.is_of_kind(contents))) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("\"", output.path, "\" is there already",
                   output.is_of_kind ? absl::StrCat(" and is not ", output.kind) : "",
                   "; name another file, or give --overwrite"));
}

}  // namespace

OutputFile OutputThatBeginsWith(std::string path, std::string kind, std::string beginning) {
  return {.path = std::move(path),
          .kind = std::move(kind),
          .is_of_kind = [beginning = std::move(beginning)](std::string_view contents) {
            return contents.starts_with(beginning);
          }};
}

absl::Status CheckOutputs(const std::vector<OutputFile>& outputs,
                          const std::vector<std::string>& inputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string& path = outputs[i].path;
    for (const std::string& input : inputs) {
      if (AreSame(path, input)) {
        return absl::FailedPreconditionError(
            absl::StrCat("\"", path, "\" is read and cannot be written too; name another output"));
      }
    }
    for (size_t other = 0; other < i; ++other) {
      if (AreSame(path, outputs[other].path)) {
        return absl::FailedPreconditionError(absl::StrCat("\"", path, "\" is named for ",
                                                          outputs[other].kind, " and for ",
                                                          outputs[i].kind, "; name two files"));
      }
    }
    LS_RETURN_IF_ERROR(CheckReplaced(outputs[i]));
  }
  return absl::OkStatus();
}

}  // namespace lockstep
