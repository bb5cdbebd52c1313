#include "tools/launch/kept_configs.h"

#include <cstddef>
#include <cstdio>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"

namespace lockstep {

absl::StatusOr<KeptConfigs> KeptConfigs::Read(const std::vector<std::string>& paths) {
  KeptConfigs kept;
  for (const std::string& path : paths) {
    LS_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
    kept.files_.push_back({.path = path, .text = std::move(text)});
  }
  return kept;
}

absl::StatusOr<std::vector<std::string>> KeptConfigs::PathsNow(const std::string& out) const {
  std::vector<std::string> paths;
  for (const File& file : files_) {
    paths.push_back(file.path);
    const absl::StatusOr<std::string> now = ReadFile(file.path);
    if ((now.ok() && *now == file.text) || !IsDirectory(out)) continue;
    paths.back() = absl::StrCat(out, "/config_at_start-", paths.size(), ".toml");
    LS_RETURN_IF_ERROR(WriteFileAtomically(paths.back(), file.text));
    std::fprintf(stderr,
                 "%s is not what it was when the run started: the run goes on with what stood "
                 "there, now in %s\n",
                 file.path.c_str(), paths.back().c_str());
  }
  return paths;
}

std::vector<std::string> WithConfigs(const std::vector<std::string>& arguments,
                                     const std::vector<std::string>& paths) {
  constexpr char kFlag[] = "--config";
  std::vector<std::string> replaced = arguments;
  size_t next = 0;
  for (size_t i = 0; i < replaced.size() && next < paths.size(); ++i) {
    if (replaced[i] == kFlag && i + 1 < replaced.size()) {
      replaced[++i] = paths[next++];
    } else if (absl::StartsWith(replaced[i], absl::StrCat(kFlag, "="))) {
      replaced[i] = absl::StrCat(kFlag, "=", paths[next++]);
    }
  }
  return replaced;
}

}  // namespace lockstep
