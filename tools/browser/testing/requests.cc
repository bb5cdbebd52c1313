#include "tools/browser/testing/requests.h"

#include "core/base/file.h"
#include "core/base/status.h"
#include "nlohmann/json.hpp"
#include "tools/browser/browser.h"
#include "tools/experiment/paths.h"

namespace lockstep {

absl::StatusOr<std::set<std::string>> RequestsOf(const std::string& html) {
  using Json = nlohmann::json;
  LS_ASSIGN_OR_RETURN(const TemporaryDirectory scratch, TemporaryDirectory::Create());
  const std::string path = scratch.path() + "/net.json";
  LS_RETURN_IF_ERROR(ResultOfScript(html, "", {.net_log = path}).status());
  LS_ASSIGN_OR_RETURN(const std::string log, ReadFile(path));
  const Json json = Json::parse(log, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InternalError("the browser's log is no JSON");
  std::set<std::string> requests;
  for (const Json& event : json.at("events")) {
    const Json parameters = event.value("params", Json::object());
    const std::string url = parameters.value("url", "");
    if (!url.empty() && !url.starts_with("file:") && !url.starts_with("data:")) {
      requests.insert(url);
    }
  }
  return requests;
}

}  // namespace lockstep
