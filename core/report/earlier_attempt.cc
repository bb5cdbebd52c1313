#include "core/report/earlier_attempt.h"

#include <algorithm>  // std::ranges::all_of
#include <map>
#include <utility>  // std::move

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

// Contents by name, of the files to keep.
using Files = std::map<std::string, std::string>;

absl::StatusOr<Files> FilesToKeep(const std::string& out, const std::string& config,
                                  const std::vector<NamedRows>& rows, int64_t first_step) {
  Files files;
  for (const NamedRows& file : rows) {
    LS_ASSIGN_OR_RETURN(std::string cut, RowFile::RowsToCut(absl::StrCat(out, "/", file.name),
                                                            *file.format, first_step));
    if (!cut.empty()) files[file.name] = std::move(cut);
  }
  for (const char* name : {"config.toml", "summary.json"}) {
    absl::StatusOr<std::string> contents = ReadFile(absl::StrCat(out, "/", name));
    if (absl::IsNotFound(contents.status())) continue;
    LS_RETURN_IF_ERROR(contents.status());
    files[name] = *std::move(contents);
  }
  if (const auto found = files.find("config.toml"); found != files.end()) {
    if (found->second == config) files.erase(found);
  }
  return files;
}

bool HoldsAll(const std::string& folder, const Files& files) {
  return std::ranges::all_of(files, [&folder](const auto& file) {
    const absl::StatusOr<std::string> contents = ReadFile(absl::StrCat(folder, "/", file.first));
    return contents.ok() && *contents == file.second;
  });
}

}  // namespace

absl::Status KeepEarlierAttempt(const std::string& out, const std::string& config,
                                const std::vector<NamedRows>& rows, int64_t first_step) {
  const std::string folder = absl::StrCat(out, "/", kEarlierFolder);
  const std::string draft = folder + "/draft.tmp";  // only a killed program leaves it
  if (PathExists(draft)) RemoveTree(draft);
  LS_ASSIGN_OR_RETURN(const Files files, FilesToKeep(out, config, rows, first_step));
  if (files.empty()) return absl::OkStatus();
  int n = 1;
  while (PathExists(absl::StrCat(folder, "/", n))) ++n;
  if (n > 1 && HoldsAll(absl::StrCat(folder, "/", n - 1), files)) return absl::OkStatus();
  LS_RETURN_IF_ERROR(MakeDirectories(draft));
  for (const auto& [name, contents] : files) {
    LS_RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(draft, "/", name), contents));
  }
  return PutInPlace(draft, absl::StrCat(folder, "/", n));
}

}  // namespace lockstep
