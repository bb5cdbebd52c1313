#pragma once

#include <string>
#include <vector>

namespace lockstep {

// A group of ranks as one member sees it.
struct GroupInfo {
  std::string name;
  std::vector<int> members{};  // their ranks in the world, by their rank in the group
  int rank = 0;                // of this member, within the group

  int size() const { return static_cast<int>(members.size()); }
  // "'dp' [0, 2]"
  std::string ToString() const;
};

// "rank 3", "ranks 0, 2": for messages.
std::string RanksText(const std::vector<int>& ranks);

// "ranks 0, 2 called X, rank 1 called Y", where calls[i] is what ranks[i] called: those with the
// same call together, in the order of the first of them.
std::string CallersText(const std::vector<std::string>& calls, const std::vector<int>& ranks);

}  // namespace lockstep
