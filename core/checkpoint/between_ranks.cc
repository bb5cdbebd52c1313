#include "core/checkpoint/between_ranks.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/checkpoint/draft.h"
#include "core/comm/host_numbers.h"
#include "core/tensor/allocator.h"

namespace lockstep {
namespace {

constexpr char kLabel[] = "checkpoint";

}  // namespace

absl::Status AgreeOnError(const absl::Status& own, Communicator& ranks) {
  constexpr int64_t kCodes = 64;  // more than there are
  CpuAllocator allocator;
  int64_t value = (own.ok() ? ranks.size() : ranks.rank()) * kCodes + own.raw_code();
  LS_RETURN_IF_ERROR(AllReduceNumbers(ranks, absl::MakeSpan(&value, 1), ReduceOp::kMin, kLabel));
  const int rank = static_cast<int>(value / kCodes);
  if (rank == ranks.size()) return absl::OkStatus();
  constexpr int64_t kLongest = 1024;
  const Tensor text = Tensor::Empty(allocator, {kLongest}, DType::kU8, MemoryClass::kCommunication);
  std::memset(text.raw(), 0, kLongest);
  std::memcpy(text.raw(), own.message().data(),
              std::min<size_t>(own.message().size(), kLongest - 1));
  LS_RETURN_IF_ERROR(ranks.Broadcast(text, rank, kLabel).Wait());
  return absl::Status(static_cast<absl::StatusCode>(value % kCodes),
                      reinterpret_cast<const char*>(text.raw()));
}

absl::StatusOr<ShardNumber> NumberShards(const std::vector<StateTensor>& state,
                                         Communicator& ranks) {
  CpuAllocator allocator;
  const Tensor own = Tensor::Empty(allocator, {2}, DType::kI64, MemoryClass::kCommunication);
  const Tensor all =
      Tensor::Empty(allocator, {2 * ranks.size()}, DType::kI64, MemoryClass::kCommunication);
  own.data<int64_t>()[0] = std::any_of(state.begin(), state.end(), IsSaved) ? 1 : 0;
  own.data<int64_t>()[1] = absl::GetCurrentTimeNanos();
  LS_RETURN_IF_ERROR(ranks.AllGather(own, all, kLabel).Wait());
  // The time of rank 0 tells what is saved together from all else.
  ShardNumber number = {.shards = 0, .set = absl::StrCat(all.data<int64_t>()[1])};
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (rank == ranks.rank()) number.shard = number.shards;
    number.shards += all.data<int64_t>()[2 * rank];
  }
  return number;
}

}  // namespace lockstep
