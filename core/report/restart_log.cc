#include "core/report/restart_log.h"

#include <fcntl.h>   // O_APPEND
#include <unistd.h>  // ftruncate, write

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <ctime>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/status.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

constexpr char kLaunched[] = "launched";
constexpr size_t kLongestCause = 500;  // bytes
constexpr absl::string_view kCut = "...";

std::string PathOf(const std::string& out) { return absl::StrCat(out, "/", kRestartsFile); }

// A row of the file; nothing where it cannot be read.
std::optional<Restart> RestartOf(const nlohmann::json& row) {
  const auto has = [&](const char* key, bool (nlohmann::json::*is)() const noexcept) {
    return row.is_object() && row.contains(key) && (row[key].*is)();
  };
  if (!has("time", &nlohmann::json::is_string) || !has("cause", &nlohmann::json::is_string) ||
      !has("steps", &nlohmann::json::is_number_integer) ||
      !has("formation", &nlohmann::json::is_string)) {
    return std::nullopt;
  }
  Restart restart = {.time = row["time"].get<std::string>(),
                     .cause = row["cause"].get<std::string>(),
                     .steps = row["steps"].get<int64_t>(),
                     .formation = row["formation"].get<std::string>()};
  if (has("state", &nlohmann::json::is_string)) restart.state = row["state"].get<std::string>();
  if (has("seconds", &nlohmann::json::is_number)) restart.seconds = row["seconds"].get<double>();
  return restart;
}

}  // namespace

std::string Restart::Describe() const {
  return absl::StrCat(cause, ": going on with ", formation, " from step ", steps,
                      state == "memory" ? " in memory" : "");
}

std::string Restart::ToRow() const {
  nlohmann::ordered_json row = {{"time", time},
                                {"cause", cause},
                                {"steps", steps},
                                {"state", state},
                                {"formation", formation}};
  if (went_on()) row["seconds"] = seconds;
  return row.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

absl::Status WriteResumed(const std::string& out, const ResumedFrom& from) {
  const nlohmann::ordered_json json = {{"steps", from.steps}, {"state", from.state}};
  return WriteFileAtomically(absl::StrCat(out, "/", kResumedFile), absl::StrCat(json.dump(), "\n"));
}

absl::StatusOr<ResumedFrom> ReadResumed(const std::string& out) {
  const std::string path = absl::StrCat(out, "/", kResumedFile);
  LS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const auto json = ParseJson(text);
  if (!json.is_object() || !json.contains("steps") || !json["steps"].is_number_integer() ||
      !json.contains("state") || !json["state"].is_string()) {
    return InvalidArgument(path, ": does not say what the run went on from");
  }
  return ResumedFrom{.steps = json["steps"].get<int64_t>(),
                     .state = json["state"].get<std::string>()};
}

std::string CauseOf(absl::string_view message) {
  const absl::string_view line = message.substr(0, message.find('\n'));
  if (line.size() <= kLongestCause) return std::string(line);
  size_t size = kLongestCause - kCut.size();
  while (size > 0 && (line[size] & 0xC0) == 0x80) --size;  // not amid a character of UTF-8
  return absl::StrCat(line.substr(0, size), kCut);
}

Restart RestartNow(absl::string_view message) {
  const std::time_t now = std::time(nullptr);
  std::tm parts;
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {.time = text, .cause = CauseOf(message)};
}

absl::Status BeginRestarts(const std::string& out, const std::string& formation) {
  if (PathExists(PathOf(out))) return absl::OkStatus();
  const nlohmann::ordered_json row = {{kLaunched, formation}};
  return WriteFileAtomically(PathOf(out), absl::StrCat(row.dump(), "\n"));
}

absl::Status AppendRestart(const std::string& out, const Restart& restart) {
  LS_ASSIGN_OR_RETURN(const std::string before, ReadFile(PathOf(out)));
  LS_ASSIGN_OR_RETURN(const FileDescriptor file, OpenRegularFile(PathOf(out), O_WRONLY | O_APPEND));
  const size_t whole_rows = before.rfind('\n') + 1;  // 0 where there is none
  const bool is_cut =
      whole_rows == before.size() || ftruncate(file.get(), static_cast<off_t>(whole_rows)) == 0;
  const std::string text = absl::StrCat(restart.ToRow(), "\n");
  if (!is_cut || write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write \"", PathOf(out), "\""));
  }
  return absl::OkStatus();
}

absl::Status ReplaceRestart(const std::string& out, const Restart& before, const Restart& after) {
  LS_ASSIGN_OR_RETURN(const std::string text, ReadFile(PathOf(out)));
  const std::string row = absl::StrCat(before.ToRow(), "\n");
  if (!absl::EndsWith(text, absl::StrCat("\n", row))) return AppendRestart(out, after);
  const absl::string_view rows_before(text.data(), text.size() - row.size());
  return WriteFileAtomically(PathOf(out), absl::StrCat(rows_before, after.ToRow(), "\n"));
}

absl::StatusOr<std::vector<Restart>> ReadRestarts(const std::string& out) {
  if (!PathExists(PathOf(out))) return std::vector<Restart>();
  LS_ASSIGN_OR_RETURN(const std::string text, ReadFile(PathOf(out)));
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  lines.pop_back();  // what stands behind the last line end
  std::vector<Restart> restarts;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto row = ParseJson(lines[i]);
    if (row.is_object() && row.contains(kLaunched)) continue;
    std::optional<Restart> restart = RestartOf(row);
    if (!restart) {
      return InvalidArgument(PathOf(out), ":", i + 1, ": \"", lines[i],
                             "\" is no row of a restart: the file was changed or is damaged");
    }
    restarts.push_back(*std::move(restart));
  }
  return restarts;
}

std::string RestartsTable(const std::vector<Restart>& restarts) {
  if (restarts.empty()) return "no restarts\n";
  std::string text = absl::StrFormat("%-20s  %9s  %-6s  %12s  %-20s  %s\n", "time", "from step",
                                     "in", "next step in", "formation", "cause");
  std::vector<double> seconds;
  for (const Restart& restart : restarts) {
    if (restart.went_on()) seconds.push_back(restart.seconds);
    absl::StrAppendFormat(&text, "%-20s  %9d  %-6s  %12s  %-20s  %s\n", restart.time, restart.steps,
                          restart.state.empty() ? "-" : restart.state,
                          restart.went_on() ? FormatDuration(restart.seconds) : "none",
                          restart.formation, restart.cause);
  }
  absl::StrAppendFormat(&text, "%d restarts", restarts.size());
  if (!seconds.empty()) {
    std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
    absl::StrAppend(&text, "; the next step came after ",
                    FormatDuration(seconds[seconds.size() / 2]), " (median)");
  }
  return absl::StrCat(text, "\n");
}

}  // namespace lockstep
