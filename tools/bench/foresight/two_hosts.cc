#include "tools/bench/foresight/two_hosts.h"

#include <unistd.h>  // geteuid

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/base/subprocess.h"
#include "tools/experiment/paths.h"

namespace lockstep {

absl::StatusOr<TwoHosts> TwoHosts::Create(const std::string& script, const std::string& rate) {
  if (geteuid() != 0) {
    return absl::PermissionDeniedError("two hosts are made by root alone: network namespaces");
  }
  // Hosts know no working directory.
  TwoHosts hosts(AbsolutePath(script));
  LS_ASSIGN_OR_RETURN(const ProcessResult result,
                      RunProcess({.arguments = {hosts.script_, "up", rate}}));
  if (result.interrupted) return absl::CancelledError("interrupted");
  if (!result.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no two hosts could be made (", script, "): ", result.err));
  }
  return hosts;
}

TwoHosts::~TwoHosts() {
  if (!script_.empty()) (void)RunProcess({.arguments = {script_, "down"}});
}

}  // namespace lockstep
