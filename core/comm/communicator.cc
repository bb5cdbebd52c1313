// What a member can check of its call alone, and the normal form in which backends get it.

#include "core/comm/communicator.h"

#include <algorithm>  // std::adjacent_find
#include <cstddef>
#include <cstdint>
#include <functional>  // std::not_equal_to
#include <numeric>     // std::accumulate
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// `whole` holds the chunks of all members, `chunk` that of one; either may be undefined where this
// member has none, but not both.
Signature OfChunks(Operation operation, const Tensor& whole, const Tensor& chunk,
                   absl::Span<const int64_t> counts, const GroupInfo& group) {
  const Tensor& any = whole.defined() ? whole : chunk;
  CHECK(any.defined()) << Name(operation);
  Signature signature{.operation = operation, .dtype = any.dtype(), .memory = any.device().type};
  if (counts.empty()) {
    signature.count = chunk.defined() ? chunk.elements() * group.size() : whole.elements();
    CHECK_EQ(signature.count % group.size(), 0)
        << Name(operation) << " of " << whole.ToString() << " over " << group.ToString()
        << ": chunks that are not equal need counts";
  } else {
    CHECK_EQ(counts.size(), group.members.size()) << Name(operation);
    for (const int64_t count : counts) CHECK_GE(count, 0) << Name(operation);
    signature.count = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    // Equal counts are the same call as none.
    if (std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) != counts.end()) {
      signature.counts.assign(counts.begin(), counts.end());
    }
  }
  if (whole.defined()) {
    CHECK_EQ(whole.elements(), signature.count) << Name(operation) << ", the whole";
  }
  if (chunk.defined()) {
    CHECK_EQ(chunk.elements(), ChunkOf(signature, group.size(), group.rank).count)
        << Name(operation) << ", the own chunk";
  }
  if (whole.defined() && chunk.defined()) {
    CHECK(whole.dtype() == chunk.dtype()) << Name(operation);
    CHECK(whole.device() == chunk.device()) << Name(operation);
    // In place the chunk lies where it belongs; else the two are apart.
    const std::byte* at =
        whole.raw() + ChunkOf(signature, group.size(), group.rank).begin * SizeOf(whole.dtype());
    CHECK(chunk.raw() == at || chunk.bytes() == 0 || chunk.raw() + chunk.bytes() <= whole.raw() ||
          whole.raw() + whole.bytes() <= chunk.raw())
        << Name(operation) << ": the chunk overlaps the whole, and not at its own place";
  }
  return signature;
}

// Two tensors of the same elements; `output` may be undefined.
Signature OfPair(Operation operation, const Tensor& input, const Tensor& output) {
  CHECK(input.defined()) << Name(operation);
  if (output.defined()) {
    CHECK(input.dtype() == output.dtype()) << Name(operation);
    CHECK(input.device() == output.device()) << Name(operation);
    CHECK_EQ(input.elements(), output.elements()) << Name(operation);
    CHECK(input.raw() == output.raw() || input.raw() + input.bytes() <= output.raw() ||
          output.raw() + output.bytes() <= input.raw())
        << Name(operation) << ": input and output overlap, and are not the same";
  }
  return {.operation = operation,
          .dtype = input.dtype(),
          .count = input.elements(),
          .memory = input.device().type};
}

void SetReduction(ReduceOp op, Signature& signature) {
  CHECK(signature.dtype != DType::kU8) << Name(signature.operation) << " of u8";
  signature.reduce_op = op;
}

void SetRoot(int root, const GroupInfo& group, Signature& signature) {
  CHECK_GE(root, 0) << Name(signature.operation);
  CHECK_LT(root, group.size()) << Name(signature.operation) << " in " << group.ToString();
  signature.root = root;
}

}  // namespace

Work Communicator::AllReduce(const Tensor& input, const Tensor& output, ReduceOp op,
                             absl::string_view label) {
  CHECK(output.defined());
  Signature signature = OfPair(Operation::kAllReduce, input, output);
  SetReduction(op, signature);
  return Start({std::move(signature), input, output, std::string(label)});
}

Work Communicator::ReduceScatter(const Tensor& input, const Tensor& output, ReduceOp op,
                                 absl::string_view label, absl::Span<const int64_t> counts) {
  CHECK(input.defined() && output.defined());
  Signature signature = OfChunks(Operation::kReduceScatter, input, output, counts, *group_);
  SetReduction(op, signature);
  return Start({std::move(signature), input, output, std::string(label)});
}

Work Communicator::AllGather(const Tensor& input, const Tensor& output, absl::string_view label,
                             absl::Span<const int64_t> counts) {
  CHECK(input.defined() && output.defined());
  Signature signature = OfChunks(Operation::kAllGather, output, input, counts, *group_);
  return Start({std::move(signature), input, output, std::string(label)});
}

Work Communicator::Broadcast(const Tensor& tensor, int root, absl::string_view label) {
  Signature signature = OfPair(Operation::kBroadcast, tensor, tensor);
  SetRoot(root, *group_, signature);
  return Start({std::move(signature), tensor, tensor, std::string(label)});
}

Work Communicator::Reduce(const Tensor& input, const Tensor& output, ReduceOp op, int root,
                          absl::string_view label) {
  const bool is_root = root == rank();
  CHECK(!is_root || output.defined()) << "reduce: the root needs an output";
  Signature signature = OfPair(Operation::kReduce, input, is_root ? output : Tensor());
  SetReduction(op, signature);
  SetRoot(root, *group_, signature);
  return Start({std::move(signature), input, is_root ? output : Tensor(), std::string(label)});
}

Work Communicator::Gather(const Tensor& input, const Tensor& output, int root,
                          absl::string_view label, absl::Span<const int64_t> counts) {
  const bool is_root = root == rank();
  CHECK(!is_root || output.defined()) << "gather: the root needs an output";
  CHECK(input.defined());
  const Tensor whole = is_root ? output : Tensor();
  Signature signature = OfChunks(Operation::kGather, whole, input, counts, *group_);
  SetRoot(root, *group_, signature);
  return Start({std::move(signature), input, whole, std::string(label)});
}

Work Communicator::Scatter(const Tensor& input, const Tensor& output, int root,
                           absl::string_view label, absl::Span<const int64_t> counts) {
  const bool is_root = root == rank();
  CHECK(!is_root || input.defined()) << "scatter: the root needs an input";
  CHECK(output.defined());
  const Tensor whole = is_root ? input : Tensor();
  Signature signature = OfChunks(Operation::kScatter, whole, output, counts, *group_);
  SetRoot(root, *group_, signature);
  return Start({std::move(signature), whole, output, std::string(label)});
}

Work Communicator::AllToAll(const Tensor& input, const Tensor& output, absl::string_view label) {
  CHECK(output.defined());
  Signature signature = OfPair(Operation::kAllToAll, input, output);
  CHECK_EQ(signature.count % size(), 0) << "all_to_all over " << group_->ToString();
  return Start({std::move(signature), input, output, std::string(label)});
}

Work Communicator::Send(const Tensor& tensor, int to, absl::string_view label) {
  Signature signature = OfPair(Operation::kSend, tensor, Tensor());
  SetRoot(to, *group_, signature);
  return Start({std::move(signature), tensor, Tensor(), std::string(label)});
}

Work Communicator::Recv(const Tensor& tensor, int from, absl::string_view label) {
  Signature signature = OfPair(Operation::kRecv, tensor, Tensor());
  SetRoot(from, *group_, signature);
  return Start({std::move(signature), Tensor(), tensor, std::string(label)});
}

Work Communicator::Barrier(absl::string_view label) {
  Call call;
  call.signature.operation = Operation::kBarrier;
  call.label = std::string(label);
  return Start(std::move(call));
}

}  // namespace lockstep
