#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/status.h"
#include "core/config/config.h"
#include "core/config/settings.h"
#include "glog/logging.h"
#include "tools/hostile/fuzz/fuzz_targets.h"

namespace lockstep {

absl::Status FuzzConfig(std::string_view input) {
  std::string toml;
  std::vector<std::string> assignments;
  const std::string text(input);
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, "--set ")) {
      assignments.emplace_back(line);
    } else {
      absl::StrAppend(&toml, line, "\n");
    }
  }
  LS_ASSIGN_OR_RETURN(Config config, Config::FromString(toml, "input"));
  for (const std::string& assignment : assignments) LS_RETURN_IF_ERROR(config.Set(assignment));

  // What a run writes into its folder is the configuration that it read.
  const std::string written = config.ToToml();
  const auto again = Config::FromString(written, "written");
  CHECK(again.ok()) << again.status();
  CHECK_EQ(again->ToToml(), written);
  CHECK(again->Differences(config).empty());

  return ReadSettings(config).status();
}

}  // namespace lockstep
