#include "tools/launch/rank_processes.h"

#include <unistd.h>  // getpid

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/file.h"

namespace lockstep {
namespace {

// By the name of the program that runs.
LaunchedProcess::Kind KindOf(const std::string& program) {
  const std::string name = program.substr(program.rfind('/') + 1);
  if (name == "main") return LaunchedProcess::Kind::kRank;
  if (name == "worker") return LaunchedProcess::Kind::kWorker;
  if (name == "launch") return LaunchedProcess::Kind::kLauncher;
  return LaunchedProcess::Kind::kMpirun;
}

}  // namespace

std::vector<LaunchedProcess> ProcessesOf(const std::string& out) {
  std::vector<LaunchedProcess> processes;
  const auto names = ListFolder("/proc");
  if (!names.ok()) return processes;
  for (const std::string& name : *names) {
    int pid = 0;
    if (!absl::SimpleAtoi(name, &pid) || pid == getpid()) continue;
    // A zombie has no arguments.
    const std::string text = ReadFile(absl::StrCat("/proc/", pid, "/cmdline")).value_or("");
    const std::vector<std::string> arguments = absl::StrSplit(text, '\0');
    if (std::find(arguments.begin(), arguments.end(), out) == arguments.end()) continue;
    processes.push_back({.pid = pid, .kind = KindOf(arguments[0])});
  }
  return processes;
}

}  // namespace lockstep
