#include "strategies/stages/balance.h"

#include <algorithm>
#include <cmath>
#include <iterator>  // std::ssize
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"
#include "strategies/stages/block_work.h"

namespace lockstep {
namespace {

std::string Names(const Model& model) {
  return absl::StrJoin(model.blocks, ", ",
                       [](std::string* out, const auto& block) { out->append(block->name()); });
}

absl::Status Check(const Model& model, const std::vector<int64_t>& balance, int stages,
                   const std::string& key) {
  const int64_t blocks = std::ssize(model.blocks);
  if (stages > blocks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "mesh.pp is ", stages, ", but the model has ", blocks, " blocks (", Names(model),
        ") and each stage needs one; use mesh.pp = ", blocks, " or less"));
  }
  if (balance.empty()) return absl::OkStatus();
  const auto problem = [&](const std::string& what) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, " = [", absl::StrJoin(balance, ", "), "] ", what,
                     "; with \"cost\", \"time\" or \"size\" in its place the stages are evened out "
                     "by what their blocks compute, take or hold"));
  };
  if (std::ssize(balance) != stages) {
    return problem(absl::StrCat("has ", balance.size(), " stages, but mesh.pp is ", stages));
  }
  if (*std::min_element(balance.begin(), balance.end()) < 1) {
    return problem("leaves a stage without blocks: each needs one");
  }
  // What is above the number of blocks does not fit, whatever the others are.
  int64_t sum = 0;
  for (const int64_t count : balance) sum += std::min(count, blocks + 1);
  if (sum != blocks) {
    return problem(
        absl::StrCat("does not sum up to the model's ", blocks, " blocks (", Names(model), ")"));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<int64_t> BlockCosts(const Model& model) {
  std::vector<int64_t> costs;
  for (const BlockWork& work : WorkOfBlocks(model)) costs.push_back(std::llround(work.total()));
  return costs;
}

std::vector<int64_t> EvenBalance(const std::vector<int64_t>& costs, int stages) {
  const int64_t blocks = std::ssize(costs);
  CHECK_GE(stages, 1);
  CHECK_LE(stages, blocks);
  std::vector<int64_t> before(blocks + 1, 0);  // costs of the blocks before each
  for (int64_t i = 0; i < blocks; ++i) before[i + 1] = before[i] + costs[i];
  // Of the first n blocks in s stages: the least cost of the costliest stage, and where the last
  // stage of that division begins.
  constexpr int64_t kImpossible = std::numeric_limits<int64_t>::max();
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

absl::StatusOr<std::vector<BlockRange>> DivideBlocks(const Model& model,
                                                     const std::vector<int64_t>& balance,
                                                     int stages, const std::string& key) {
  if (absl::Status status = Check(model, balance, stages, key); !status.ok()) return status;
  std::vector<BlockRange> ranges;
  int64_t begin = 0;
  for (const int64_t count : balance.empty() ? EvenBalance(BlockCosts(model), stages) : balance) {
    ranges.push_back({begin, begin + count});
    begin += count;
  }
  return ranges;
}

}  // namespace lockstep
