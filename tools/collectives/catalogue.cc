#include "tools/collectives/catalogue.h"

#include "core/base/nearest.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr Collective kCollectives[] = {
    {
        .operation = Operation::kSend,
        .name = "send_recv",
        .summary = "A message from one rank to another; here each rank sends to the next.",
        .notation = "rank i holds xᵢ → rank i+1 holds xᵢ",
        .time = "α + Bβ",
        .sends = "the sender B, the receiver nothing",
        .users = "layerwise and gpipe: activations to the next stage, their gradients back to the "
                 "one before.",
    },
    {
        .operation = Operation::kBroadcast,
        .name = "broadcast",
        .summary = "The root's data goes to every rank.",
        .notation = "the root r holds xᵣ → every rank holds xᵣ",
        .time = "(n−2+k)(α + Bβ/k), in k pieces down a chain of ranks",
        .sends = "every rank B, the last of the chain nothing",
        .users = "layerwise and gpipe: the loss, from the last stage.",
    },
    {
        .operation = Operation::kScatter,
        .name = "scatter",
        .summary = "The root's data is dealt out: part i goes to rank i.",
        .notation = "the root holds X = [x₀, …, xₙ₋₁] → rank i holds xᵢ",
        .time = "(n−1) α + (n−1)/n · Bβ",
        .sends = "the root B less its own part, the others nothing",
        .users = "No strategy: ranks read their own shards of the data and draw their own parts of "
                 "the initial values.",
    },
    {
        .operation = Operation::kGather,
        .name = "gather",
        .summary = "The data of all ranks is collected, in rank order, by the root.",
        .notation = "rank i holds xᵢ → the root holds X = [x₀, …, xₙ₋₁]",
        .time = "(n−1) α + (n−1)/n · Bβ",
        .sends = "every rank its own part, the root nothing",
        .users = "No strategy in a step: what one rank needs of the others there, all ranks need.",
    },
    {
        .operation = Operation::kAllGather,
        .name = "all_gather",
        .summary = "The data of all ranks is collected, in rank order, by every rank.",
        .notation = "rank i holds xᵢ → every rank holds X = [x₀, …, xₙ₋₁]",
        .time = "⌈log₂ n⌉ α + (n−1)/n · Bβ",
        .sends = "every rank its own part to n−1 others: (n−1)/n · B if even",
        .users = "zero1 and zero2: what the ranks have updated. fsdp: a unit's parameters, before "
                 "its forward and again before its backward. tp: "
                 "outputs split by column; with sequence parallel, activations.",
    },
    {
        .operation = Operation::kReduce,
        .name = "reduce",
        .summary = "The data of all ranks is combined, element by element; the root gets the "
                   "result.",
        .notation = "rank i holds xᵢ → the root holds y = x₀ ⊕ x₁ ⊕ … ⊕ xₙ₋₁",
        .time = "(n−2+k)(α + Bβ/k), in k pieces up a chain of ranks",
        .sends = "every rank B, the root nothing",
        .users = "No strategy in a step: a sum that one rank needs there, all ranks need.",
    },
    {
        .operation = Operation::kAllReduce,
        .name = "all_reduce",
        .summary = "The data of all ranks is combined, element by element; every rank gets the "
                   "result.",
        .notation = "rank i holds xᵢ → every rank holds y = x₀ ⊕ x₁ ⊕ … ⊕ xₙ₋₁",
        .time = "2 ⌈log₂ n⌉ α + 2(n−1)/n · Bβ",
        .sends = "every rank 2(n−1)/n · B",
        .users = "ddp: gradients, bucket by bucket, the loss and batch statistics. tp: the partial "
                 "sums of layers split by row, forward, and of those split by column, backward.",
    },
    {
        .operation = Operation::kReduceScatter,
        .name = "reduce_scatter",
        .summary = "The data of all ranks is combined, element by element; rank i gets part i of "
                   "the result.",
        .notation = "rank i holds xᵢ → rank i holds part i of y = x₀ ⊕ x₁ ⊕ … ⊕ xₙ₋₁",
        .time = "⌈log₂ n⌉ α + (n−1)/n · Bβ",
        .sends = "every rank B less its own part: (n−1)/n · B if even",
        .users = "zero1, zero2 and fsdp: gradients, of which each rank keeps those of its shard. "
                 "tp: with sequence "
                 "parallel, in place of the all_reduce of activations.",
    },
    {
        .operation = Operation::kAllToAll,
        .name = "all_to_all",
        .summary = "Every rank deals out its data: part j of rank i becomes part i of rank j.",
        .notation = "part j of rank i → part i of rank j",
        .time = "(n−1) α + (n−1)/n · Bβ",
        .sends = "every rank (n−1)/n · B",
        .users =
            "cp: with Ulysses attention, tokens for heads and back. ep: how many rows of tokens "
            "come to each expert, before the rows themselves go as messages.",
    },
    {
        .operation = Operation::kBarrier,
        .name = "barrier",
        .summary = "No rank goes on before all have come.",
        .notation = "each rank has come → each rank knows that all n have",
        .time = "⌈log₂ n⌉ α",
        .sends = "no payload",
        .users = "No strategy in a step: the other operations already hold a rank until what it "
                 "needs has come.",
    },
};

}  // namespace

absl::Span<const Collective> Collectives() { return kCollectives; }

const Collective& CollectiveOf(Operation operation) {
  for (const Collective& collective : kCollectives) {
    if (collective.operation == operation) return collective;
  }
  LOG(FATAL) << "no demo of " << Name(operation);
}

absl::StatusOr<Collective> FindCollective(const std::string& name) {
  if (name == "send" || name == "recv") return CollectiveOf(Operation::kSend);
  return FindNamed("operation", name, kCollectives,
                   [](const Collective& collective) { return collective.name; });
}

}  // namespace lockstep
