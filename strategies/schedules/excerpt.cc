#include "strategies/schedules/excerpt.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr int kKinds = sizeof(kActionLetters) - 1;

// Which actions the micro-batches at one place in each shard have, by shard, stage and kind.
using ActionSet = std::vector<bool>;

// The places between the first in a shard and the last that have different sets: the first place
// of each set.
std::map<ActionSet, int64_t> PlacesBySet(const Schedule& schedule, int64_t of_shard) {
  const int64_t shards = schedule.micro_batches / of_shard;
  const auto size_of_shard = static_cast<size_t>(schedule.stages()) * kKinds;
  std::vector<ActionSet> sets(static_cast<size_t>(of_shard), ActionSet(shards * size_of_shard));
  for (const std::vector<Action>& actions : schedule.ranks) {
    for (const auto& [kind, stage, micro_batch] : actions) {
      sets[micro_batch % of_shard][micro_batch / of_shard * size_of_shard + stage * kKinds +
                                   static_cast<size_t>(kind)] = true;
    }
  }
  std::map<ActionSet, int64_t> first;
  for (int64_t i = 1; i + 1 < of_shard; ++i) first.try_emplace(std::move(sets[i]), i);
  return first;
}

// Returns how many actions of `set` are not in `covered`.
int64_t CountNew(const ActionSet& set, const ActionSet& covered) {
  int64_t count = 0;
  for (size_t i = 0; i < set.size(); ++i) count += set[i] && !covered[i] ? 1 : 0;
  return count;
}

// Returns few places whose sets together have all actions.
std::vector<int64_t> Cover(const std::map<ActionSet, int64_t>& places) {
  std::vector<int64_t> cover;
  for (ActionSet covered(places.begin()->first.size());;) {
    auto most = places.end();
    int64_t most_new = 0;
    for (auto place = places.begin(); place != places.end(); ++place) {
      const int64_t count = CountNew(place->first, covered);
      if (count <= most_new) continue;
      most = place;
      most_new = count;
    }
    if (most == places.end()) return cover;
    cover.push_back(most->second);
    for (size_t i = 0; i < covered.size(); ++i) covered[i] = covered[i] || most->first[i];
  }
}

}  // namespace

Schedule ExcerptOf(const Schedule& schedule, int64_t of_shard) {
  CHECK_EQ(schedule.micro_batches % of_shard, 0);
  if (of_shard <= 3) return schedule;
  std::vector<int64_t> kept = Cover(PlacesBySet(schedule, of_shard));
  kept.insert(kept.end(), {0, of_shard - 1});
  std::ranges::sort(kept);
  const auto few = static_cast<int>(kept.size());
  Schedule excerpt = schedule;
  excerpt.micro_batches = static_cast<int>(schedule.micro_batches / of_shard) * few;
  for (std::vector<Action>& actions : excerpt.ranks) {
    std::erase_if(actions, [&](const Action& action) {
      return !std::ranges::binary_search(kept, action.micro_batch % of_shard);
    });
    for (Action& action : actions) {
      const auto shard = static_cast<int>(action.micro_batch / of_shard);
      const auto at = std::ranges::lower_bound(kept, action.micro_batch % of_shard);
      action.micro_batch = shard * few + static_cast<int>(at - kept.begin());
    }
  }
  return excerpt;
}

}  // namespace lockstep
