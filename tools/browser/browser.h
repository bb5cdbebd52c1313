// A browser without a window, for pages of our own.

#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace lockstep {

inline constexpr int kPageWidth = 1280;  // of the page's pixels

struct BrowserOptions {
  // Device pixels for one of the page's.
  int scale = 1;
  // Where the browser leaves its log of what it asked the network for, as JSON; empty: nowhere.
  std::string net_log = {};
};

// Opens `html` in Chromium, runs its scripts and returns the document as they left it, as HTML.
// Nothing is asked of any server. The window is kPageWidth wide. NotFound where there is no
// Chromium: the message says what to install.
absl::StatusOr<std::string> DocumentAfterScripts(const std::string& html,
                                                 const BrowserOptions& options = {});

// What a window of `width` x `height` shows of `html`, in the page's pixels, as a PNG file's bytes.
// Errors as above.
absl::StatusOr<std::string> PictureOf(const std::string& html, int width, int height,
                                      const BrowserOptions& options = {});

// The text of the element <pre id="`id`"> of a document that DocumentAfterScripts returned, where a
// script leaves what it found, unescaped. NotFound if there is none.
absl::StatusOr<std::string> TextOfPre(const std::string& document, const std::string& id);

// `html` with a script that runs after all others. `script` must not have "</script".
std::string WithScript(const std::string& html, const std::string& script);

}  // namespace lockstep
