#include "core/comm/group_info.h"

#include <string>
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

}  // namespace lockstep
