#include "core/nn/split.h"

namespace lockstep {
namespace {

// Whether `text` is the pattern, whose stars stand for any characters.
bool Matches(const char* pattern, const char* text) {
  for (; *pattern != '\0' && *pattern != '*'; ++pattern, ++text) {
    if (*pattern != *text) return false;
  }
  if (*pattern == '\0') return *text == '\0';
  for (;; ++text) {
    if (Matches(pattern + 1, text)) return true;
    if (*text == '\0') return false;
  }
}

}  // namespace

bool MatchesLayer(const std::string& pattern, const std::string& layer_name) {
  for (std::string name = layer_name;; name.resize(name.rfind('.'))) {
    if (Matches(pattern.c_str(), name.c_str())) return true;
    if (name.rfind('.') == std::string::npos) return false;
  }
}

SplitStyle StyleOf(const std::vector<SplitRule>& plan, const std::string& layer_name) {
  for (const SplitRule& rule : plan) {
    if (MatchesLayer(rule.pattern, layer_name)) return rule.style;
  }
  return SplitStyle::kReplicated;
}

}  // namespace lockstep
