#include "tools/browser/browser.h"

#include <algorithm>  // std::min
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/base/subprocess.h"
#include "tools/experiment/paths.h"

namespace lockstep {
namespace {

// As distributions call it, the one made for this first.
constexpr const char* kNames[] = {"chromium-headless-shell", "chromium", "chromium-browser",
                                  "google-chrome"};

absl::StatusOr<std::string> FindBrowser() {
  for (const char* name : kNames) {
    if (std::string path = FindOnPath(name); !path.empty()) return path;
  }
  return absl::NotFoundError(
      "no Chromium on this machine, which draws the charts; on Debian: apt-get install "
      "chromium-headless-shell fonts-dejavu-core");
}

// Opens the page and runs its scripts; returns what the browser writes to its standard output.
// `more` says what is to be done with the page.
absl::StatusOr<std::string> Browse(const std::string& html, const BrowserOptions& options,
                                   const std::vector<std::string>& more) {
  LS_ASSIGN_OR_RETURN(const std::string browser, FindBrowser());
  LS_ASSIGN_OR_RETURN(const TemporaryDirectory scratch, TemporaryDirectory::Create());
  const std::string page = scratch.path() + "/page.html";
  LS_RETURN_IF_ERROR(WriteFileAtomically(page, html));
  std::vector<std::string> arguments = {
      browser, "--headless",
      // The page is ours and asks for nothing; containers and root have no sandbox to offer.
      "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
      // What the browser would ask for on its own account.
      "--disable-background-networking", "--disable-component-update", "--no-first-run",
      "--host-resolver-rules=MAP * ~NOTFOUND",
      absl::StrCat("--user-data-dir=", scratch.path(), "/profile"),
      absl::StrCat("--force-device-scale-factor=", options.scale), "--hide-scrollbars",
      "--virtual-time-budget=10000"};
  if (!options.net_log.empty()) {
    arguments.push_back(absl::StrCat("--log-net-log=", options.net_log));
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  arguments.push_back(absl::StrCat("file://", page));
  LS_ASSIGN_OR_RETURN(const ProcessResult result, RunProcess({.arguments = arguments}));
  if (!result.ok()) {
    return absl::InternalError(absl::StrCat(browser, ": ", result.Describe(), "\n",
                                            absl::StripAsciiWhitespace(result.err)));
  }
  return result.out;
}

std::string WindowSize(int width, int height) {
  return absl::StrCat("--window-size=", width, ",", height);
}

}  // namespace

absl::StatusOr<nlohmann::json> ResultOfScript(const std::string& html, const std::string& script,
                                              const BrowserOptions& options) {
  // Leaves the result in the document, which the browser then prints.
  const std::string element =
      absl::StrCat("<script>{\n  const result = (() => {", script, "})();\n",
                   "  const place = document.createElement('pre');\n  place.id = 'script-result';\n"
                   "  place.textContent = JSON.stringify(result ?? null);\n"
                   "  document.body.append(place);\n}</script>\n");
  std::string page = html;
  page.insert(std::min(page.rfind("</body>"), page.size()), element);
  LS_ASSIGN_OR_RETURN(const std::string document,
                      Browse(page, options, {WindowSize(kPageWidth, 1000), "--dump-dom"}));
  constexpr std::string_view kOpen = "<pre id=\"script-result\">";
  const size_t begin = document.find(kOpen), end = document.find("</pre>", begin);
  if (begin == std::string::npos || end == std::string::npos) {
    return absl::NotFoundError("the page's scripts have not come to their end");
  }
  const size_t from = begin + kOpen.size();
  return nlohmann::json::parse(
      absl::StrReplaceAll(document.substr(from, end - from),
                          {{"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}, {"&nbsp;", "\u00a0"}}));
}

absl::StatusOr<std::string> PictureOf(const std::string& html, int width, int height,
                                      const BrowserOptions& options) {
  LS_ASSIGN_OR_RETURN(const TemporaryDirectory scratch, TemporaryDirectory::Create());
  const std::string path = scratch.path() + "/page.png";
  LS_RETURN_IF_ERROR(
      Browse(html, options, {WindowSize(width, height), absl::StrCat("--screenshot=", path)})
          .status());
  return ReadFile(path);
}

}  // namespace lockstep
