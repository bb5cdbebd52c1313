#include "tools/bench/call_data.h"

#include <cstdint>
#include <cstring>  // std::memset
#include <numeric>  // std::accumulate
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/tensor/dtype.h"
#include "glog/logging.h"
#include "tools/collectives/movement.h"

namespace lockstep {
namespace {

// Elements of one part of what the ranks bring or get (tools/collectives/movement.h).
int64_t PartSize(const TimedCall& call) {
  return HasParts(call.operation) ? call.part() : call.elements;
}

Movement MovementOfCall(const TimedCall& call) {
  return MovementOf(call.operation, std::vector<int64_t>(call.ranks, PartSize(call)), /*root=*/0);
}

// What the output of `rank` is made of; nothing if it has none.
std::vector<Flow> FlowsTo(const TimedCall& call, int rank) {
  if (call.operation == Operation::kSend) {
    // More than Movement's: it goes around, so that every rank has both ends.
    return {{.from = {{(rank + call.ranks - 1) % call.ranks, 0}}, .to = {rank, 0}}};
  }
  std::vector<Flow> flows = MovementOfCall(call).flows;
  std::erase_if(flows, [rank](const Flow& flow) { return flow.to.rank != rank; });
  return flows;
}

// Element `i` of a rank's input: 0 to 15, so that sums are exact in every dtype. Scattered by a
// multiplicative hash (Knuth, The Art of Computer Programming, volume 3, section 6.4), so that
// parts that change places do not go unseen.
template <typename T>
T Value(int rank, int64_t i) {
  const auto n = static_cast<uint32_t>(i) + 0x9E3779B9u * static_cast<uint32_t>(rank + 1);
  return static_cast<T>(static_cast<int32_t>(n * 2654435761u >> 28));
}
constexpr int kNoValue = -1;

template <typename T>
void FillAs(int rank, const CallTensors& tensors) {
  // Where both are one, or one lies in the other, the input's values stand.
  if (tensors.output.defined()) {
    for (T& x : tensors.output.span<T>()) x = static_cast<T>(kNoValue);
  }
  if (!tensors.input.defined()) return;
  T* const input = tensors.input.data<T>();
  for (int64_t i = 0; i < tensors.input.elements(); ++i) input[i] = Value<T>(rank, i);
}

template <typename T>
absl::Status CheckAs(const TimedCall& call, int rank, const CallTensors& tensors) {
  const int64_t size = PartSize(call);
  for (const Flow& flow : FlowsTo(call, rank)) {
    const int64_t begin = flow.to.part * size;
    for (int64_t i = 0; i < size; ++i) {
      T expected = 0;
      for (const Cell& from : flow.from) expected += Value<T>(from.rank, from.part * size + i);
      const T actual = tensors.output.data<T>()[begin + i];
      if (actual == expected) continue;
      return absl::InternalError(absl::StrCat(TimedName(call.operation), " of ", Name(call.dtype),
                                              " x ", call.elements, " among ", call.ranks,
                                              " ranks: element ", begin + i, " of rank ", rank,
                                              " is ", actual, " and must be ", expected));
    }
  }
  return absl::OkStatus();
}

// Returns function(T()) for the dtype's type; for those that TimedDType lets through.
template <typename Function>
auto WithTypeOf(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::kF32:
      return function(float());
    case DType::kF64:
      return function(double());
    case DType::kI32:
      return function(int32_t());
    case DType::kI64:
      return function(int64_t());
    default:
      LOG(FATAL) << Name(dtype) << " is not timed";
  }
}

}  // namespace

CallTensors MakeRankMemory(Allocator& allocator, DType dtype, int64_t elements) {
  const auto make = [&] {
    const Tensor tensor = Tensor::Empty(allocator, {elements}, dtype, MemoryClass::kCommunication);
    std::memset(tensor.raw(), 0, static_cast<size_t>(tensor.bytes()));
    return tensor;
  };
  return {.input = make(), .output = make()};
}

CallTensors TensorsOf(const TimedCall& call, int rank, const CallTensors& memory) {
  const Tensor whole = memory.input.View(0, {call.elements});
  if (call.operation == Operation::kBroadcast) return {.input = whole, .output = whole};
  if (call.operation == Operation::kSend) {
    return {.input = whole, .output = memory.output.View(0, {call.elements})};
  }
  const Movement movement = MovementOfCall(call);
  const auto elements = [](const std::vector<int64_t>& parts) {
    return std::accumulate(parts.begin(), parts.end(), int64_t{0});
  };
  const int64_t in = elements(movement.before[rank]), out = elements(movement.after[rank]);
  CallTensors tensors;
  if (in > 0) tensors.input = memory.input.View(0, {in});
  if (out > 0) tensors.output = memory.output.View(0, {out});
  if (!call.in_place || in == 0 || out == 0) return tensors;
  // The smaller one is the rank's own part of the other.
  const int64_t own = in == out ? 0 : rank * call.part();
  if (in < out) {
    tensors.input = tensors.output.View(own, {in});
  } else {
    tensors.output = tensors.input.View(own, {out});
  }
  return tensors;
}

void FillTensors(const TimedCall& call, int rank, const CallTensors& tensors) {
  WithTypeOf(call.dtype, [&]<typename T>(T) { FillAs<T>(rank, tensors); });
}

absl::Status CheckOutput(const TimedCall& call, int rank, const CallTensors& tensors) {
  return WithTypeOf(call.dtype, [&]<typename T>(T) { return CheckAs<T>(call, rank, tensors); });
}

}  // namespace lockstep
