#include "tools/experiment/source_tree.h"

#include <cstdlib>  // std::getenv
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/file.h"
#include "core/base/status.h"

namespace lockstep {

absl::StatusOr<std::string> SourceTree() {
  const char* workspace = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  if (workspace != nullptr) return std::string(workspace);
  return absl::FailedPreconditionError(
      "cannot tell where the source tree is; start this program with ./bazelw run");
}

absl::StatusOr<std::string> WorkloadFile(const std::string& tree, const std::string& workload) {
  const std::string folder = tree + "/experiments";
  const auto file = [&folder](const std::string& name) {
    return absl::StrCat(folder, "/", name, "/workload.toml");
  };
  if (!workload.empty() && workload.find('/') == std::string::npos && PathExists(file(workload))) {
    return file(workload);
  }
  LS_ASSIGN_OR_RETURN(std::vector<std::string> names, lockstep::ListFolder(folder));
  std::erase_if(names, [&file](const std::string& name) { return !PathExists(file(name)); });
  return InvalidArgument("there is no workload '", workload, "'; experiments/ has ",
                         absl::StrJoin(names, ", "));
}

}  // namespace lockstep
