// A browser without a window, for pages of our own.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace lockstep {

inline constexpr int kPageWidth = 1280;  // of the page's pixels

struct BrowserOptions {
  // Device pixels for one of the page's.
  int scale = 1;
  // Where the browser leaves its log of what it asked the network for, as JSON; empty: nowhere.
  std::string net_log = {};
};

// Opens `html` in Chromium, lets its scripts run, then `script`, the body of a JavaScript function
// without "</script", and returns what that returns. The window is kPageWidth wide. Nothing is
// asked of any server. NotFound where there is no Chromium (the message says what to install), and
// where the script did not come to its end.
absl::StatusOr<nlohmann::json> ResultOfScript(const std::string& html, const std::string& script,
                                              const BrowserOptions& options = {});

// What a window of `width` x `height` shows of `html`, in the page's pixels, as a PNG file's bytes.
// Errors as above.
absl::StatusOr<std::string> PictureOf(const std::string& html, int width, int height,
                                      const BrowserOptions& options = {});

}  // namespace lockstep
