#include "core/checkpoint/machines.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

#include "core/base/status.h"
#include "core/checkpoint/in_memory.h"
#include "core/comm/host_numbers.h"

namespace lockstep {

Machines::Machines(const std::vector<int>& of_ranks) {
  std::map<int, int> numbers;
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    const auto [found, is_new] = numbers.try_emplace(of_ranks[rank], count());
    if (is_new) ranks_.emplace_back();
    of_ranks_.push_back(found->second);
    ranks_[static_cast<size_t>(found->second)].push_back(static_cast<int>(rank));
  }
}

int Machines::NeighbourOf(int rank) const {
  const std::vector<int>& here = RanksOf(Of(rank));
  const std::vector<int>& next = RanksOf((Of(rank) + 1) % count());
  const auto place = std::lower_bound(here.begin(), here.end(), rank) - here.begin();
  return next[static_cast<size_t>(place) % next.size()];
}

Machines Machines::Among(absl::Span<const int> members) const {
  std::vector<int> of_members;
  for (const int rank : members) of_members.push_back(Of(rank));
  return Machines(of_members);
}

absl::StatusOr<Machines> FindMachines(Communicator& ranks) {
  const auto own = static_cast<int64_t>(IdentityOfMemory());
  std::vector<int64_t> all(static_cast<size_t>(ranks.size()));
  LS_RETURN_IF_ERROR(GatherNumbers(ranks, {&own, 1}, absl::MakeSpan(all), "machines"));
  std::vector<int> of_ranks;
  for (const int64_t identity : all) {
    of_ranks.push_back(static_cast<int>(std::find(all.begin(), all.end(), identity) - all.begin()));
  }
  return Machines(of_ranks);
}

}  // namespace lockstep
