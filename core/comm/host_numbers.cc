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

}  // namespace lockstep
