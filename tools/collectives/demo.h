// One operation, run by ranks that are threads, and recorded.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/ledger.h"
#include "core/comm/operation.h"
#include "tools/collectives/movement.h"

namespace lockstep {

inline constexpr int kMaxDemoRanks = 16;
inline constexpr int64_t kMaxDemoCount = 8;

struct DemoOptions {
  Operation operation = Operation::kAllReduce;  // kSend: send and recv, from each rank to the next
  int ranks = 4;                                // 1 to kMaxDemoRanks
  ReduceOp reduce_op = ReduceOp::kSum;          // where it reduces
  int root = 0;                                 // where there is one
  int64_t count = 1;                            // elements of each part, 1 to kMaxDemoCount
  bool uneven = false;                          // parts of count, count + 1, count + 2, count, ...
  // What each rank brings, by rank, or of a scatter what the root has for each; empty: numbers that
  // tell where they come from. Reductions of them must be exact in fp32.
  std::vector<int> values = {};
  // A number for each rank: those of the same number are a group, which runs the operation by
  // itself; `root` counts inside it. Empty: all ranks are one.
  std::vector<int> groups = {};

  // The ranks of each group, in order.
  std::vector<std::vector<int>> members() const;
};

// Elements by part, and by rank and part, as many as Movement says.
using Parts = std::vector<std::vector<float>>;
using RankData = std::vector<Parts>;

struct Demo {
  DemoOptions options;
  Movement movement;
  RankData before;  // what the ranks bring
  RankData after;   // what they got; of a barrier: how many ranks had come when this one went on
  std::vector<std::vector<LedgerEntry>> ledgers;  // each rank's
};

// Runs the operation through Communicator and checks what every rank got (CheckData). Outputs hold
// NaN before, so that what is not written shows. A barrier is met by ranks that come one after
// another. CHECKs the ranges of the options.
absl::StatusOr<Demo> RunDemo(const DemoOptions& options);

// Whether `after` is what the movement makes of `before`, each element bit for bit: computed cell
// by cell from the cells that flow into it. The error names the first part that differs.
absl::Status CheckData(const Movement& movement, ReduceOp reduce_op, const RankData& before,
                       const RankData& after);

}  // namespace lockstep
