#include "core/comm/host_numbers.h"

#include <algorithm>

#include "core/base/status.h"
#include "core/tensor/allocator.h"
#include "core/tensor/tensor.h"

namespace lockstep {
namespace {

// Calls run(tensor), a collective in place, on a tensor that holds the values.
template <typename T, typename Function>
absl::Status InHostMemory(absl::Span<T> values, Function&& run) {
  CpuAllocator allocator;
  const Tensor tensor = Tensor::Empty(allocator, {static_cast<int64_t>(values.size())}, kDTypeOf<T>,
                                      MemoryClass::kCommunication);
  std::copy(values.begin(), values.end(), tensor.data<T>());
  LS_RETURN_IF_ERROR(run(tensor).Wait());
  std::copy_n(tensor.data<T>(), values.size(), values.begin());
  return absl::OkStatus();
}

template <typename T>
absl::Status AllReduce(Communicator& ranks, absl::Span<T> values, ReduceOp op,
                       absl::string_view label) {
  return InHostMemory(
      values, [&](const Tensor& tensor) { return ranks.AllReduce(tensor, tensor, op, label); });
}

template <typename T>
absl::Status Broadcast(Communicator& ranks, absl::Span<T> values, int root,
                       absl::string_view label) {
  return InHostMemory(values,
                      [&](const Tensor& tensor) { return ranks.Broadcast(tensor, root, label); });
}

// The same from some numbers to others.
template <typename Function>
absl::Status BetweenInHostMemory(absl::Span<const int64_t> sent, absl::Span<int64_t> received,
                                 Function&& run) {
  CpuAllocator allocator;
  const auto make = [&allocator](size_t count) {
    return Tensor::Empty(allocator, {static_cast<int64_t>(count)}, DType::kI64,
                         MemoryClass::kCommunication);
  };
  const Tensor from = make(sent.size()), to = make(received.size());
  std::copy(sent.begin(), sent.end(), from.data<int64_t>());
  LS_RETURN_IF_ERROR(run(from, to).Wait());
  std::copy_n(to.data<int64_t>(), received.size(), received.begin());
  return absl::OkStatus();
}

}  // namespace

absl::Status AllReduceNumbers(Communicator& ranks, absl::Span<float> values, ReduceOp op,
                              absl::string_view label) {
  return AllReduce(ranks, values, op, label);
}

absl::Status AllReduceNumbers(Communicator& ranks, absl::Span<double> values, ReduceOp op,
                              absl::string_view label) {
  return AllReduce(ranks, values, op, label);
}

absl::Status AllReduceNumbers(Communicator& ranks, absl::Span<int64_t> values, ReduceOp op,
                              absl::string_view label) {
  return AllReduce(ranks, values, op, label);
}

absl::Status BroadcastNumbers(Communicator& ranks, absl::Span<double> values, int root,
                              absl::string_view label) {
  return Broadcast(ranks, values, root, label);
}

absl::Status BroadcastNumbers(Communicator& ranks, absl::Span<int64_t> values, int root,
                              absl::string_view label) {
  return Broadcast(ranks, values, root, label);
}

absl::Status ExchangeNumbers(Communicator& ranks, absl::Span<const int64_t> sent,
                             absl::Span<int64_t> received, absl::string_view label) {
  return BetweenInHostMemory(sent, received, [&](const Tensor& from, const Tensor& to) {
    return ranks.AllToAll(from, to, label);
  });
}

absl::Status GatherNumbers(Communicator& ranks, absl::Span<const int64_t> sent,
                           absl::Span<int64_t> received, absl::string_view label) {
  return BetweenInHostMemory(sent, received, [&](const Tensor& from, const Tensor& to) {
    return ranks.AllGather(from, to, label);
  });
}

}  // namespace lockstep
