#include "tools/collectives/movement.h"

#include "glog/logging.h"

namespace lockstep {
namespace {

enum class Who { kAll, kRoot, kAllButFirst, kAllButLast };

// What a rank has that has anything: one part, its own, or a part for each rank.
enum class What { kOwn, kPartForEach };

struct Holding {
  Who who;
  What what;
};

// Which ranks a cell's contents come from, and which of their parts.
enum class FromRank { kRoot, kPrevious, kRankOfPart, kEvery };
enum class FromPart { kOwn, kOfDestination };

struct Semantics {
  Operation operation;
  Holding before, after;
  FromRank from_rank;
  FromPart from_part;
};

constexpr Holding kOwnOfAll = {Who::kAll, What::kOwn};
constexpr Holding kOwnOfRoot = {Who::kRoot, What::kOwn};
constexpr Holding kPartsOfAll = {Who::kAll, What::kPartForEach};
constexpr Holding kPartsOfRoot = {Who::kRoot, What::kPartForEach};
constexpr Holding kOwnOfSenders = {Who::kAllButLast, What::kOwn};
constexpr Holding kOwnOfReceivers = {Who::kAllButFirst, What::kOwn};

constexpr Semantics kSemantics[] = {
    // operation, before, after, what is after comes from which ranks, which part of theirs
    {Operation::kGather, kOwnOfAll, kPartsOfRoot, FromRank::kRankOfPart, FromPart::kOwn},
    {Operation::kAllGather, kOwnOfAll, kPartsOfAll, FromRank::kRankOfPart, FromPart::kOwn},
    {Operation::kBroadcast, kOwnOfRoot, kOwnOfAll, FromRank::kRoot, FromPart::kOwn},
    {Operation::kScatter, kPartsOfRoot, kOwnOfAll, FromRank::kRoot, FromPart::kOfDestination},
    {Operation::kReduce, kOwnOfAll, kOwnOfRoot, FromRank::kEvery, FromPart::kOwn},
    {Operation::kAllReduce, kOwnOfAll, kOwnOfAll, FromRank::kEvery, FromPart::kOwn},
    {Operation::kReduceScatter, kPartsOfAll, kOwnOfAll, FromRank::kEvery, FromPart::kOfDestination},
    {Operation::kAllToAll, kPartsOfAll, kPartsOfAll, FromRank::kRankOfPart,
     FromPart::kOfDestination},
    {Operation::kSend, kOwnOfSenders, kOwnOfReceivers, FromRank::kPrevious, FromPart::kOwn},
    {Operation::kBarrier, kOwnOfAll, kOwnOfAll, FromRank::kEvery, FromPart::kOwn},
};

const Semantics& SemanticsOf(Operation operation) {
  for (const Semantics& semantics : kSemantics) {
    if (semantics.operation == operation) return semantics;
  }
  LOG(FATAL) << "no movement of " << Name(operation);
}

bool Holds(Who who, int rank, int ranks, int root) {
  switch (who) {
    case Who::kAll:
      return true;
    case Who::kRoot:
      return rank == root;
    case Who::kAllButFirst:
      return rank > 0;
    case Who::kAllButLast:
      return rank + 1 < ranks;
  }
  return false;
}

std::vector<std::vector<int64_t>> Parts(const Holding& holding, absl::Span<const int64_t> counts,
                                        int root) {
  const int ranks = static_cast<int>(counts.size());
  std::vector<std::vector<int64_t>> parts(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    if (!Holds(holding.who, rank, ranks, root)) continue;
    if (holding.what == What::kOwn) {
      parts[rank] = {counts[rank]};
    } else {
      parts[rank].assign(counts.begin(), counts.end());
    }
  }
  return parts;
}

std::vector<Cell> SourcesOf(const Semantics& semantics, const Cell& to, int ranks, int root) {
  const int part = semantics.from_part == FromPart::kOwn ? 0 : to.rank;
  switch (semantics.from_rank) {
    case FromRank::kRoot:
      return {{root, part}};
    case FromRank::kPrevious:
      return {{to.rank - 1, part}};
    case FromRank::kRankOfPart:
      return {{to.part, part}};
    case FromRank::kEvery:
      break;
  }
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
