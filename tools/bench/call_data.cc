#include "tools/bench/call_data.h"

#include <cstdint>
#include <cstring>  // std::memset
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/tensor/dtype.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr int kEverybody = -1;

// Elements [begin, begin + count) of an output: elements `source_begin` and on of the input of rank
// `source`, or the sums of everybody's.
struct Segment {
  int64_t begin = 0;
  int64_t count = 0;
  int source = kEverybody;
  int64_t source_begin = 0;
};

// What the output of `rank` is made of; nothing if it has none.
std::vector<Segment> Expected(const TimedCall& call, int rank) {
  const int64_t part = call.part();
  switch (call.operation) {
    case Operation::kReduce:
      if (rank != 0) return {};
      [[fallthrough]];
    case Operation::kAllReduce:
      return {{.count = call.elements}};
    case Operation::kReduceScatter:
      return {{.count = part, .source_begin = rank * part}};
    case Operation::kBroadcast:
      return {{.count = call.elements, .source = 0}};
    case Operation::kScatter:
      return {{.count = part, .source = 0, .source_begin = rank * part}};
    case Operation::kSend:
      return {{.count = call.elements, .source = (rank + call.ranks - 1) % call.ranks}};
    case Operation::kGather:
      if (rank != 0) return {};
      [[fallthrough]];
    case Operation::kAllGather:
    case Operation::kAllToAll: {
      std::vector<Segment> segments;
      const int64_t from = call.operation == Operation::kAllToAll ? rank * part : 0;
      for (int source = 0; source < call.ranks; ++source) {
        segments.push_back(
            {.begin = source * part, .count = part, .source = source, .source_begin = from});
      }
      return segments;
    }
    case Operation::kRecv:
    case Operation::kBarrier:
    case Operation::kSplit:
      break;
  }
  LOG(FATAL) << Name(call.operation) << " is not timed";
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
  for (const Segment& segment : Expected(call, rank)) {
    const T* const output = tensors.output.data<T>() + segment.begin;
    const int first = segment.source == kEverybody ? 0 : segment.source;
    const int last = segment.source == kEverybody ? call.ranks - 1 : segment.source;
    const auto expected = [&](int64_t i) {
      T sum = 0;
      for (int source = first; source <= last; ++source) {
        sum += Value<T>(source, segment.source_begin + i);
      }
      return sum;
    };
    for (int64_t i = 0; i < segment.count; ++i) {
      if (output[i] == expected(i)) continue;
      return absl::InternalError(
          absl::StrCat(TimedName(call.operation), " of ", Name(call.dtype), " x ", call.elements,
                       " among ", call.ranks, " ranks: element ", segment.begin + i, " of rank ",
                       rank, " is ", output[i], " and must be ", expected(i)));
    }
  }
  return absl::OkStatus();
}

// Calls function(T()) for the dtype's type; for those that TimedDType lets through.
template <typename Function>
void WithTypeOf(DType dtype, Function&& function) {
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
      break;
  }
  LOG(FATAL) << Name(dtype) << " is not timed";
}

}  // namespace

RankMemory MakeRankMemory(Allocator& allocator, DType dtype, int64_t elements) {
  const auto make = [&] {
    const Tensor tensor = Tensor::Empty(allocator, {elements}, dtype, MemoryClass::kCommunication);
    std::memset(tensor.raw(), 0, static_cast<size_t>(tensor.bytes()));
    return tensor;
  };
  return {.input = make(), .output = make()};
}

CallTensors TensorsOf(const TimedCall& call, int rank, const RankMemory& memory) {
  const Tensor input = memory.input.View(0, {call.elements});
  const Tensor output = memory.output.View(0, {call.elements});
  const auto part_within = [&](const Tensor& whole) {
    return whole.View(rank * call.part(), {call.part()});
  };
  const auto part_alone = [&](const Tensor& whole) { return whole.View(0, {call.part()}); };
  const bool root = rank == 0;
  switch (call.operation) {
    case Operation::kAllReduce:
    case Operation::kAllToAll:
      return {.input = input, .output = call.in_place ? input : output};
    case Operation::kSend:
      return {.input = input, .output = output};
    case Operation::kBroadcast:
      return {.input = input, .output = input};
    case Operation::kReduce:
      if (!root) return {.input = input};
      return {.input = input, .output = call.in_place ? input : output};
    case Operation::kReduceScatter:
      return {.input = input, .output = call.in_place ? part_within(input) : part_alone(output)};
    case Operation::kGather:
      if (!root) return {.input = part_alone(input)};
      [[fallthrough]];
    case Operation::kAllGather:
      return {.input = call.in_place ? part_within(output) : part_alone(input), .output = output};
    case Operation::kScatter:
      if (!root) return {.output = part_alone(output)};
      return {.input = input, .output = call.in_place ? part_within(input) : part_alone(output)};
    case Operation::kRecv:
    case Operation::kBarrier:
    case Operation::kSplit:
      break;
  }
  LOG(FATAL) << Name(call.operation) << " is not timed";
}

void FillTensors(const TimedCall& call, int rank, const CallTensors& tensors) {
  WithTypeOf(call.dtype, [&]<typename T>(T) { FillAs<T>(rank, tensors); });
}

absl::Status CheckOutput(const TimedCall& call, int rank, const CallTensors& tensors) {
  absl::Status status;
  WithTypeOf(call.dtype, [&]<typename T>(T) { status = CheckAs<T>(call, rank, tensors); });
  return status;
}

}  // namespace lockstep
