#include "strategies/stages/balance.h"

#include <algorithm>
#include <functional>
#include <iterator>  // std::ssize
#include <limits>

#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr int64_t kImpossible = std::numeric_limits<int64_t>::max();

// Costs of the blocks before each, and of all of them.
std::vector<int64_t> CostsBefore(const std::vector<int64_t>& costs) {
  std::vector<int64_t> before(costs.size() + 1, 0);
  for (size_t i = 0; i < costs.size(); ++i) before[i + 1] = before[i] + costs[i];
  return before;
}

bool IsVShaped(const std::vector<int>& rank_of_stage) {
  const int stages = static_cast<int>(rank_of_stage.size());
  for (int stage = 0; stage < stages; ++stage) {
    if (rank_of_stage[stage] != std::min(stage, stages - 1 - stage)) return false;
  }
  return stages % 2 == 0;
}

// Divides blocks among the stages of a V, so that the most that `cost_of_rank` has for any rank is
// as little as it can be. `cost_of_rank` is told what the rank's two stages cost, and may say that
// this is kImpossible; it is not less than either.
struct VDivision {
  int64_t most = kImpossible;
  std::vector<int64_t> balance = {};  // by stage; empty: there is no division
};
VDivision DivideV(const std::vector<int64_t>& before, int ranks,
                  const std::function<int64_t(int64_t down, int64_t up)>& cost_of_rank) {
  // From the ends of the V to its bend: ranks from `rank` on divide the blocks [begin, end).
  struct Best {
    int64_t most = kImpossible;
    int64_t down = 0, up = 0;  // blocks of `rank`'s two stages
  };
  const int64_t blocks = std::ssize(before) - 1;
  std::vector<Best> table((ranks + 1) * (blocks + 1) * (blocks + 1));
  const auto at = [&](int rank, int64_t begin, int64_t end) -> Best& {
    return table[(rank * (blocks + 1) + begin) * (blocks + 1) + end];
  };
  for (int64_t i = 0; i <= blocks; ++i) at(ranks, i, i).most = 0;
  // Each rank outside has two blocks at least, and so has each inside.
  for (int rank = ranks - 1; rank >= 0; --rank) {
    const int64_t inside = 2 * (ranks - rank - 1);
    for (int64_t begin = rank; begin + inside + 2 <= blocks - rank; ++begin) {
      for (int64_t end = begin + inside + 2; end <= blocks - rank; ++end) {
        Best& best = at(rank, begin, end);
        for (int64_t down = 1; begin + down + inside < end; ++down) {
          const int64_t down_cost = before[begin + down] - before[begin];
          if (down_cost >= best.most) break;
          for (int64_t up = 1; begin + down + inside <= end - up; ++up) {
            const int64_t up_cost = before[end] - before[end - up];
            if (up_cost >= best.most) break;
            const int64_t inner = at(rank + 1, begin + down, end - up).most;
            if (inner >= best.most) continue;
            const int64_t own = cost_of_rank(down_cost, up_cost);
            if (std::max(inner, own) < best.most) best = {std::max(inner, own), down, up};
          }
        }
      }
    }
  }
  VDivision division = {.most = at(0, 0, blocks).most};
  if (division.most == kImpossible) return division;
  division.balance.resize(2 * ranks);
  int64_t begin = 0, end = blocks;
  for (int rank = 0; rank < ranks; ++rank) {
    const Best& best = at(rank, begin, end);
    division.balance[rank] = best.down;
    division.balance[2 * ranks - 1 - rank] = best.up;
    begin += best.down;
    end -= best.up;
  }
  return division;
}

}  // namespace

std::vector<int64_t> EvenBalance(const std::vector<int64_t>& costs, int stages) {
  const int64_t blocks = std::ssize(costs);
  CHECK_GE(stages, 1);
  CHECK_LE(stages, blocks);
  const std::vector<int64_t> before = CostsBefore(costs);
  // For the first n blocks in s stages: the least cost of the costliest stage, and where the last
  // stage of that division begins.
  std::vector<std::vector<int64_t>> least(stages + 1,
                                          std::vector<int64_t>(blocks + 1, kImpossible));
  std::vector<std::vector<int64_t>> begin(stages + 1, std::vector<int64_t>(blocks + 1, 0));
  least[0][0] = 0;
  for (int s = 1; s <= stages; ++s) {
    for (int64_t n = s; n <= blocks; ++n) {
      for (int64_t last = s - 1; last < n; ++last) {
        const int64_t costliest = std::max(least[s - 1][last], before[n] - before[last]);
        if (costliest < least[s][n]) {
          least[s][n] = costliest;
          begin[s][n] = last;
        }
      }
    }
  }
  std::vector<int64_t> balance(stages);
  int64_t end = blocks;
  for (int s = stages; s > 0; --s) {
    balance[s - 1] = end - begin[s][end];
    end = begin[s][end];
  }
  return balance;
}

std::vector<int64_t> EvenBalance(const std::vector<int64_t>& costs,
                                 const std::vector<int>& rank_of_stage) {
  const int stages = static_cast<int>(rank_of_stage.size());
  if (!IsVShaped(rank_of_stage)) return EvenBalance(costs, stages);
  CHECK_LE(stages, std::ssize(costs));
  const std::vector<int64_t> before = CostsBefore(costs);
  const int64_t costliest_rank =
      DivideV(before, stages / 2, [](int64_t down, int64_t up) { return down + up; }).most;
  return DivideV(before, stages / 2,
                 [costliest_rank](int64_t down, int64_t up) {
                   return down + up <= costliest_rank ? std::max(down, up) : kImpossible;
                 })
      .balance;
}

}  // namespace lockstep
