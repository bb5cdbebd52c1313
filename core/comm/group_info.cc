#include "core/comm/group_info.h"

#include <algorithm>  // std::find_if
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep {

std::string GroupInfo::ToString() const {
  return absl::StrCat("'", name, "' [", absl::StrJoin(members, ", "), "]");
}

std::string RanksText(const std::vector<int>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
}

std::string CallersText(const std::vector<std::string>& calls, const std::vector<int>& ranks) {
  std::vector<std::pair<std::string, std::vector<int>>> callers;
  for (size_t i = 0; i < calls.size(); ++i) {
    auto same = std::find_if(callers.begin(), callers.end(),
                             [&](const auto& caller) { return caller.first == calls[i]; });
    if (same == callers.end()) same = callers.insert(same, {calls[i], {}});
    same->second.push_back(ranks[i]);
  }
  std::string text;
  for (const auto& [call, by] : callers) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", RanksText(by), " called ", call);
  }
  return text;
}

}  // namespace lockstep
