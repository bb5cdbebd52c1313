#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep {

enum class FlagKind { kSwitch, kValue };

// What stands behind a program's name: words, switches ("--all") and flags with a value ("--ranks
// 4" is "--ranks=4"), in any order.
class Arguments {
 public:
  // InvalidArgument for a flag that is not in `known` (it suggests the nearest), a value that is
  // missing, and one that a switch has no use for.
  static absl::StatusOr<Arguments> Parse(const std::vector<std::string>& arguments,
                                         const std::map<std::string, FlagKind>& known);

  const std::vector<std::string>& words() const { return words_; }
  bool Has(const std::string& flag) const { return flags_.contains(flag); }
  // Of a flag that was given, else `fallback`.
  std::string Value(const std::string& flag, const std::string& fallback = "") const;
  // A whole number in [least, most]; `fallback` where the flag was not given. InvalidArgument for
  // all else.
  absl::StatusOr<int> Whole(const std::string& flag, int least, int most, int fallback) const;

 private:
  std::vector<std::string> words_;
  std::map<std::string, std::string> flags_;  // a switch has an empty value
};

}  // namespace lockstep
