#include "core/cuda/emulation/nccl_group.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace lockstep::emulation {
namespace {

size_t SizeOf(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclFloat64:
      return 8;
  }
  return 1;
}

bool IsMessage(NcclOperation operation) {
  return operation == NcclOperation::kSend || operation == NcclOperation::kRecv;
}

template <typename T>
T Combine(ncclRedOp_t op, T a, T b) {
  switch (op) {
    case ncclProd:
      return a * b;
    case ncclMax:
      return b > a || b != b ? b : a;
    case ncclMin:
      return b < a || b != b ? b : a;
    default:
      return a + b;
  }
}

// sum[i] = sum[i] op x[i], as elements T that are combined as `Wide`, which the conversions make of
// them: in the order of ranks, as a ring would from its first.
template <typename T, typename Wide, Wide (*kWiden)(T), T (*kNarrow)(Wide)>
void Add(ncclRedOp_t op, const std::byte* x, size_t count, std::byte* sum) {
  for (size_t i = 0; i < count; ++i) {
    T left, right;
    std::memcpy(&left, sum + i * sizeof(T), sizeof(T));
    std::memcpy(&right, x + i * sizeof(T), sizeof(T));
    left = kNarrow(Combine(op, kWiden(left), kWiden(right)));
    std::memcpy(sum + i * sizeof(T), &left, sizeof(T));
  }
}

template <typename T>
T Same(T x) {
  return x;
}
template <typename T>
void AddPlain(ncclRedOp_t op, const std::byte* x, size_t count, std::byte* sum) {
  Add<T, T, Same<T>, Same<T>>(op, x, count, sum);
}

void AddTyped(ncclDataType_t type, ncclRedOp_t op, const std::byte* x, size_t count,
              std::byte* sum) {
  switch (type) {
    case ncclFloat32:
      return AddPlain<float>(op, x, count, sum);
    case ncclFloat64:
      return AddPlain<double>(op, x, count, sum);
    case ncclFloat16:
      return Add<__half, float, __half2float, __float2half_rn>(op, x, count, sum);
    case ncclBfloat16:
      return Add<__nv_bfloat16, float, __bfloat162float, __float2bfloat16_rn>(op, x, count, sum);
    // Signed integers wrap around as unsigned ones do; their order differs.
    case ncclInt32:
      return op == ncclMax || op == ncclMin ? AddPlain<int32_t>(op, x, count, sum)
                                            : AddPlain<uint32_t>(op, x, count, sum);
    case ncclInt64:
      return op == ncclMax || op == ncclMin ? AddPlain<int64_t>(op, x, count, sum)
                                            : AddPlain<uint64_t>(op, x, count, sum);
    case ncclUint8:
      return AddPlain<uint8_t>(op, x, count, sum);
  }
}

// The whole as the quotient of an average.
void Divide(ncclDataType_t type, size_t count, int ranks, std::byte* sum) {
  const auto divide = [&]<typename T>(T, auto widen, auto narrow) {
    for (size_t i = 0; i < count; ++i) {
      T value;
      std::memcpy(&value, sum + i * sizeof(T), sizeof(T));
      auto wide = widen(value);
      wide = static_cast<decltype(wide)>(wide / static_cast<decltype(wide)>(ranks));
      value = narrow(wide);
      std::memcpy(sum + i * sizeof(T), &value, sizeof(T));
    }
  };
  switch (type) {
    case ncclFloat32:
      return divide(float{}, Same<float>, Same<float>);
    case ncclFloat64:
      return divide(double{}, Same<double>, Same<double>);
    case ncclFloat16:
      return divide(__half{}, __half2float, __float2half_rn);
    case ncclBfloat16:
      return divide(__nv_bfloat16{}, __bfloat162float, __float2bfloat16_rn);
    case ncclInt32:
      return divide(int32_t{}, Same<int32_t>, Same<int32_t>);
    case ncclInt64:
      return divide(int64_t{}, Same<int64_t>, Same<int64_t>);
    case ncclUint8:
      return divide(uint8_t{}, Same<uint8_t>, Same<uint8_t>);
  }
}

// Elements that a rank sends and receives.
size_t SentBy(const NcclCall& call, int rank, int ranks) {
  switch (call.operation) {
    case NcclOperation::kReduceScatter:
      return call.count * static_cast<size_t>(ranks);
    case NcclOperation::kBroadcast:
      return rank == call.peer ? call.count : 0;
    case NcclOperation::kRecv:
      return 0;
    default:
      return call.count;
  }
}
size_t ReceivedBy(const NcclCall& call, int rank, int ranks) {
  switch (call.operation) {
    case NcclOperation::kAllGather:
      return call.count * static_cast<size_t>(ranks);
    case NcclOperation::kReduce:
      return rank == call.peer ? call.count : 0;
    case NcclOperation::kSend:
      return 0;
    default:
      return call.count;
  }
}

std::optional<Fault> JudgeMemory(const NcclGroup& group, const NcclTransfer& transfer) {
  for (int rank = 0; rank < group.ranks(); ++rank) {
    const std::optional<NcclCall>& call = transfer.calls[static_cast<size_t>(rank)];
    if (!call.has_value()) continue;
    const size_t element = SizeOf(call->type);
    const size_t sent = SentBy(*call, rank, group.ranks()) * element;
    const size_t received = ReceivedBy(*call, rank, group.ranks()) * element;
    const std::string name = call->ToString();
    if (sent > 0) {
      auto fault = JudgeAccess(name, group.device(rank), "reads", call->send, sent);
      if (fault.has_value()) return fault;
    }
    if (received > 0) {
      auto fault = JudgeAccess(name, group.device(rank), "writes", call->receive, received);
      if (fault.has_value()) return fault;
    }
  }
  return std::nullopt;
}

// What each rank sends, one behind the other: read before anything is written, in place or not.
using Payloads = std::vector<std::vector<std::byte>>;

Payloads PayloadsOf(const NcclGroup& group, const NcclTransfer& transfer) {
  Payloads payloads(static_cast<size_t>(group.ranks()));
  for (int rank = 0; rank < group.ranks(); ++rank) {
    const std::optional<NcclCall>& call = transfer.calls[static_cast<size_t>(rank)];
    if (!call.has_value()) continue;
    const size_t bytes = SentBy(*call, rank, group.ranks()) * SizeOf(call->type);
    if (bytes == 0) continue;
    const auto* const begin = static_cast<const std::byte*>(call->send);
    payloads[static_cast<size_t>(rank)].assign(begin, begin + bytes);
  }
  return payloads;
}

// The payloads' reduction.
std::vector<std::byte> Reduced(const NcclCall& call, const Payloads& payloads) {
  std::vector<std::byte> sum = payloads[0];
  const size_t count = sum.size() / SizeOf(call.type);
  for (size_t rank = 1; rank < payloads.size(); ++rank) {
    AddTyped(call.type, call.op, payloads[rank].data(), count, sum.data());
  }
  if (call.op == ncclAvg) Divide(call.type, count, static_cast<int>(payloads.size()), sum.data());
  return sum;
}

std::vector<std::byte> Joined(const Payloads& payloads) {
  std::vector<std::byte> all;
  for (const auto& payload : payloads) all.insert(all.end(), payload.begin(), payload.end());
  return all;
}

}  // namespace

std::string NcclCall::ToString() const {
  constexpr const char* kNames[] = {"ncclAllReduce",     "ncclReduce",    "ncclBroadcast",
                                    "ncclReduceScatter", "ncclAllGather", "ncclSend",
                                    "ncclRecv"};
  return absl::StrCat(kNames[static_cast<int>(operation)], "(", count, " elements of type ",
                      static_cast<int>(type), ", operation ", static_cast<int>(op), ", rank ", peer,
                      ")");
}

bool NcclCall::Agrees(const NcclCall& other) const {
  return operation == other.operation && count == other.count && type == other.type &&
         op == other.op && peer == other.peer;
}

bool NcclGroup::Join(int rank, int device) {
  int& own = devices_[static_cast<size_t>(rank)];
  if (own >= 0) return false;
  own = device;
  ++joined_;
  return true;
}

std::shared_ptr<NcclTransfer> NcclGroup::Slot(Queue& queue, int rank, size_t expected) {
  for (const std::shared_ptr<NcclTransfer>& each : queue) {
    if (!each->calls[static_cast<size_t>(rank)].has_value()) return each;
  }
  auto added = std::make_shared<NcclTransfer>();
  added->calls.resize(static_cast<size_t>(ranks_));
  added->expected = expected;
  queue.push_back(added);
  return added;
}

std::shared_ptr<NcclTransfer> NcclGroup::Add(int rank, const NcclCall& call, std::string* problem) {
  const bool is_message = IsMessage(call.operation);
  const bool sends = call.operation == NcclOperation::kSend;
  Queue& queue = !is_message ? collectives_
                 : sends     ? messages_[{rank, call.peer}]
                             : messages_[{call.peer, rank}];
  const auto transfer = Slot(queue, rank, is_message ? 2 : static_cast<size_t>(ranks_));
  for (const std::optional<NcclCall>& other : transfer->calls) {
    if (!other.has_value()) continue;
    const bool fits =
        is_message ? other->count == call.count && other->type == call.type : other->Agrees(call);
    if (fits) continue;
    *problem = absl::StrCat("rank ", rank, " calls ", call.ToString(), " where another calls ",
                            other->ToString());
    return nullptr;
  }
  transfer->calls[static_cast<size_t>(rank)] = call;
  if (++transfer->queued == transfer->expected) std::erase(queue, transfer);
  return transfer;
}

std::optional<Fault> RunTransfer(const NcclGroup& group, const NcclTransfer& transfer) {
  if (auto fault = JudgeMemory(group, transfer); fault.has_value()) return fault;
  const Payloads payloads = PayloadsOf(group, transfer);
  const auto first = std::find_if(transfer.calls.begin(), transfer.calls.end(),
                                  [](const auto& call) { return call.has_value(); });
  const NcclOperation operation = (*first)->operation;
  const bool reduces = operation == NcclOperation::kAllReduce ||
                       operation == NcclOperation::kReduce ||
                       operation == NcclOperation::kReduceScatter;
  // A message and a broadcast have one payload that is not empty.
  const std::vector<std::byte> all = reduces ? Reduced(**first, payloads) : Joined(payloads);
  for (int rank = 0; rank < group.ranks(); ++rank) {
    const std::optional<NcclCall>& call = transfer.calls[static_cast<size_t>(rank)];
    if (!call.has_value()) continue;
    const size_t bytes = ReceivedBy(*call, rank, group.ranks()) * SizeOf(call->type);
    if (bytes == 0) continue;
    const bool scatters = operation == NcclOperation::kReduceScatter;
    std::memcpy(call->receive, all.data() + (scatters ? static_cast<size_t>(rank) * bytes : 0),
                bytes);
  }
  return std::nullopt;
}

}  // namespace lockstep::emulation
