#include "tools/bench/faults/own_mounts.h"

#include <signal.h>
#include <unistd.h>  // geteuid, getcwd, usleep

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "tools/experiment/paths.h"

namespace lockstep {
namespace {

constexpr double kLongestSeconds = 10;
constexpr char kReady[] = "/.ready";
constexpr char kHold[] =
    "mount -t tmpfs -o \"size=$0\" none \"$1\" && : >\"$1/.ready\" && exec sleep 3600";

}  // namespace

absl::StatusOr<OwnMounts> OwnMounts::Make(const std::string& folder, int64_t bytes) {
  const bool is_root = geteuid() == 0;
  std::vector<std::string> words = {"unshare", "--mount"};
  if (!is_root) words.insert(words.end(), {"--user", "--map-root-user"});
  if (FindOnPath(words[0]).empty()) return absl::PermissionDeniedError("there is no unshare(1)");
  words[0] = FindOnPath(words[0]);
  words.insert(words.end(), {"sh", "-c", kHold, absl::StrCat(bytes), folder});
  LS_ASSIGN_OR_RETURN(Subprocess holder, Subprocess::Start({.arguments = words}));
  const std::string root = absl::StrCat("/proc/", holder.pid(), "/root");
  const int64_t start = NowNanos();
  while (!PathExists(absl::StrCat(root, folder, kReady))) {
    // What has ended has no root any more.
    if (!PathExists(root + "/") || SecondsSince(start) > kLongestSeconds) {
      holder.Signal(SIGKILL);
      const ProcessResult result = holder.Wait();
      return absl::PermissionDeniedError(
          absl::StrCat("mounts are not permitted here: ", absl::StripAsciiWhitespace(result.err)));
    }
    usleep(1000);
  }
  return OwnMounts(std::move(holder), is_root);
}

std::vector<std::string> OwnMounts::Inside(const std::vector<std::string>& program) const {
  std::vector<std::string> words = {FindOnPath("nsenter"), "--target", absl::StrCat(holder_.pid()),
                                    "--mount"};
  if (!is_root_) words.insert(words.end(), {"--user", "--preserve-credentials"});
  // A working directory that was entered before would be one of the other namespace.
  words.insert(words.end(), {"sh", "-c", "cd \"$0\" && exec \"$@\"", AbsolutePath(".")});
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

absl::Status OwnMounts::Shell(const std::string& line, const std::string& argument) const {
  LS_ASSIGN_OR_RETURN(const ProcessResult result,
                      RunProcess({.arguments = Inside({"/bin/sh", "-c", line, argument})}));
  if (result.ok()) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(line, ": ", result.Describe(), ": ", absl::StripAsciiWhitespace(result.err)));
}

std::string OwnMounts::Seen(const std::string& path) const {
  return absl::StrCat("/proc/", holder_.pid(), "/root", path);
}

}  // namespace lockstep
