#include "tools/collectives/movement.h"

#include "glog/logging.h"

namespace lockstep {
namespace {

enum class Who { kAll, kRoot, kAllButFirst, kAllButLast };

// Which ranks have anything, and whether that is a part for each rank or one part, their own.
struct Holding {
  Who who;
  bool has_parts;
};

constexpr Holding kOwnOfAll = {Who::kAll, false};
constexpr Holding kOwnOfRoot = {Who::kRoot, false};
constexpr Holding kPartsOfAll = {Who::kAll, true};
constexpr Holding kPartsOfRoot = {Who::kRoot, true};
constexpr Holding kOwnOfSenders = {Who::kAllButLast, false};
constexpr Holding kOwnOfReceivers = {Who::kAllButFirst, false};

struct Semantics {
  Operation operation;
  Holding before, after;
};
constexpr Semantics kSemantics[] = {{Operation::kGather, kOwnOfAll, kPartsOfRoot},
                                    {Operation::kAllGather, kOwnOfAll, kPartsOfAll},
                                    {Operation::kBroadcast, kOwnOfRoot, kOwnOfAll},
                                    {Operation::kScatter, kPartsOfRoot, kOwnOfAll},
                                    {Operation::kReduce, kOwnOfAll, kOwnOfRoot},
                                    {Operation::kAllReduce, kOwnOfAll, kOwnOfAll},
                                    {Operation::kReduceScatter, kPartsOfAll, kOwnOfAll},
                                    {Operation::kAllToAll, kPartsOfAll, kPartsOfAll},
                                    {Operation::kSend, kOwnOfSenders, kOwnOfReceivers},
                                    {Operation::kBarrier, kOwnOfAll, kOwnOfAll}};

const Semantics& SemanticsOf(Operation operation) {
  for (const Semantics& semantics : kSemantics) {
    if (semantics.operation == operation) return semantics;
  }
  LOG(FATAL) << "no movement of " << Name(operation);
}

bool Holds(Who who, int rank, int ranks, int root) {
  return who == Who::kAll || (who == Who::kRoot && rank == root) ||
         (who == Who::kAllButFirst && rank > 0) || (who == Who::kAllButLast && rank + 1 < ranks);
}

std::vector<std::vector<int64_t>> Parts(const Holding& holding, absl::Span<const int64_t> counts,
                                        int root) {
  const int ranks = static_cast<int>(counts.size());
  std::vector<std::vector<int64_t>> parts(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    if (!Holds(holding.who, rank, ranks, root)) continue;
    if (holding.has_parts) {
      parts[rank].assign(counts.begin(), counts.end());
    } else {
      parts[rank] = {counts[rank]};
    }
  }
  return parts;
}

// What comes together in a cell follows from who has what before and after.
std::vector<Cell> SourcesOf(const Semantics& semantics, const Cell& to, int ranks, int root) {
  const int part = semantics.before.has_parts ? to.rank : 0;
  if (semantics.after.has_parts) return {{to.part, part}};
  if (semantics.before.who == Who::kRoot) return {{root, part}};
  if (semantics.after.who == Who::kAllButFirst) return {{to.rank - 1, part}};
  std::vector<Cell> sources;
  for (int rank = 0; rank < ranks; ++rank) sources.push_back({rank, part});
  return sources;
}

}  // namespace

Movement MovementOf(Operation operation, absl::Span<const int64_t> counts, int root) {
  const Semantics& semantics = SemanticsOf(operation);
  const int ranks = static_cast<int>(counts.size());
  Movement movement = {.before = Parts(semantics.before, counts, root),
                       .after = Parts(semantics.after, counts, root),
                       .flows = {}};
  for (int rank = 0; rank < ranks; ++rank) {
    for (int part = 0; part < static_cast<int>(movement.after[rank].size()); ++part) {
      const Cell to = {rank, part};
      movement.flows.push_back({.from = SourcesOf(semantics, to, ranks, root), .to = to});
    }
  }
  return movement;
}

}  // namespace lockstep
