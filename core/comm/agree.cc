#include "core/comm/agree.h"

#include "core/base/status.h"
#include "core/tensor/allocator.h"

namespace lockstep {

absl::Status AgreeOnFirst(const absl::Status& own, Communicator& ranks) {
  CpuAllocator allocator;
  const Tensor first = Tensor::Empty(allocator, {1}, DType::kI64, MemoryClass::kCommunication);
  first.data<int64_t>()[0] = own.ok() ? ranks.size() : ranks.rank();
  LS_RETURN_IF_ERROR(ranks.AllReduce(first, first, ReduceOp::kMin, "agreement").Wait());
  if (first.data<int64_t>()[0] == ranks.rank()) return own;
  if (first.data<int64_t>()[0] == ranks.size()) return absl::OkStatus();
  return ranks.Barrier("end").Wait();
}

}  // namespace lockstep
