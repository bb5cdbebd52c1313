#include "tools/arguments/arguments.h"

#include <algorithm>  // std::min

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/nearest.h"

namespace lockstep {

absl::StatusOr<Arguments> Arguments::Parse(const std::vector<std::string>& arguments,
                                           const std::map<std::string, FlagKind>& known) {
  Arguments parsed;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].starts_with("-")) {
      parsed.words_.push_back(arguments[i]);
      continue;
    }
    const size_t equals = std::min(arguments[i].find('='), arguments[i].size());
    const std::string flag = arguments[i].substr(0, equals);
    const auto kind = known.find(flag);
    if (kind == known.end()) {
      std::vector<std::string> names;
      for (const auto& [name, unused] : known) names.push_back(name);
      return absl::InvalidArgumentError(absl::StrCat("unknown argument '", flag, "'; did you mean ",
                                                     NearestName(flag, names),
                                                     "? --help lists what there is"));
    }
    const bool attached = equals < arguments[i].size();
    if (kind->second == FlagKind::kSwitch) {
      if (attached) return absl::InvalidArgumentError(absl::StrCat(flag, " takes no value"));
      parsed.flags_[flag] = "";
    } else if (attached) {
      parsed.flags_[flag] = arguments[i].substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      parsed.flags_[flag] = arguments[++i];
    } else {
      return absl::InvalidArgumentError(absl::StrCat(flag, " needs a value behind it"));
    }
  }
  return parsed;
}

std::string Arguments::Value(const std::string& flag, const std::string& fallback) const {
  const auto given = flags_.find(flag);
  return given == flags_.end() ? fallback : given->second;
}

absl::StatusOr<int> Arguments::Whole(const std::string& flag, int least, int most,
                                     int fallback) const {
  if (!Has(flag)) return fallback;
  const std::string text = Value(flag);
  int number = 0;
  if (!absl::SimpleAtoi(text, &number) || number < least || number > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " ", text, ": give a whole number from ", least, " to ", most));
  }
  return number;
}

}  // namespace lockstep
