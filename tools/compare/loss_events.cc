#include "tools/compare/loss_events.h"

#include <unistd.h>  // unlink

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/report/event_file.h"

namespace lockstep {
namespace {

std::string FolderName(std::string name) {
  std::ranges::replace(name, '/', '_');
  return name.empty() ? "unknown" : name;
}

// Removes the event files of `folder`, if it is there.
absl::Status RemoveEventFiles(const std::string& folder) {
  if (!IsDirectory(folder)) return absl::OkStatus();
  LS_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(folder));
  for (const std::string& name : names) {
    if (!name.starts_with("events.out.tfevents.")) continue;
    const std::string path = absl::StrCat(folder, "/", name);
    if (unlink(path.c_str()) != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot remove \"", path, "\""));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteLossEvents(const std::vector<ComparedWorkload>& workloads,
                             const std::string& folder) {
  for (const ComparedWorkload& workload : workloads) {
    for (const ComparedRun& compared : workload.runs) {
      if (compared.run.losses.empty()) continue;
      const std::string of_run =
          absl::StrCat(folder, "/", FolderName(workload.workload), "/", FolderName(compared.label));
      LS_RETURN_IF_ERROR(RemoveEventFiles(of_run));
      LS_ASSIGN_OR_RETURN(EventFile file, EventFile::Make(of_run, 0));
      for (const LossPoint& point : compared.run.losses) {
        LS_RETURN_IF_ERROR(file.Append(point.step, {{"loss", point.loss}}));
      }
      LS_RETURN_IF_ERROR(file.Sync());
    }
  }
  return absl::OkStatus();
}

}  // namespace lockstep
