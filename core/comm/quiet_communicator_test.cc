#include "core/comm/quiet_communicator.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/status.h"
#include "core/comm/launch.h"
#include "core/tensor/allocator.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

Tensor Numbers(Allocator& allocator, DType dtype) {
  return Tensor::Empty(allocator, {2}, dtype, MemoryClass::kWorkspace);
}

TEST(QuietCommunicatorTest, MovesIntegersAndNoFloats) {
  const absl::Status status = RunRanks(3, {}, [](RankHandle& handle) -> absl::Status {
    CpuAllocator allocator;
    QuietCommunicator world(handle.comm());
    const Tensor floats = Numbers(allocator, DType::kF32);
    floats.data<float>()[0] = floats.data<float>()[1] = static_cast<float>(handle.rank());
    // One rank alone: nobody is waited for.
    if (handle.rank() == 1) {
      LS_RETURN_IF_ERROR(world.AllReduce(floats, floats, ReduceOp::kSum, "gradients").Wait());
      LS_RETURN_IF_ERROR(world.Send(floats, 2, "activations").Wait());
    }
    EXPECT_EQ(floats.data<float>()[0], static_cast<float>(handle.rank()));
    const Tensor integers = Numbers(allocator, DType::kI64);
    integers.data<int64_t>()[0] = integers.data<int64_t>()[1] = handle.rank();
    LS_RETURN_IF_ERROR(world.AllReduce(integers, integers, ReduceOp::kSum, "sizes").Wait());
    EXPECT_EQ(integers.data<int64_t>()[1], 0 + 1 + 2);
    return world.Barrier("end").Wait();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(QuietCommunicatorTest, ItsSubGroupsAreQuietToo) {
  const absl::Status status = RunRanks(4, {}, [](RankHandle& handle) -> absl::Status {
    CpuAllocator allocator;
    QuietCommunicator world(handle.comm());
    LS_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> pair,
                        world.Split(handle.rank() / 2, handle.rank(), "pair"));
    EXPECT_EQ(pair->size(), 2);
    const Tensor half = Numbers(allocator, DType::kBF16);
    if (pair->rank() == 0) LS_RETURN_IF_ERROR(pair->Broadcast(half, 0, "parameters").Wait());
    const Tensor shape = Numbers(allocator, DType::kI64);
    shape.data<int64_t>()[0] = handle.rank();
    LS_RETURN_IF_ERROR(pair->Broadcast(shape, 0, "shapes").Wait());
    EXPECT_EQ(shape.data<int64_t>()[0], handle.rank() / 2 * 2);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// As many bytes as the payload of what is reduced.
int64_t HoldsThePayload(const Signature& signature, int, bool) {
  return signature.operation == Operation::kAllReduce ? PayloadBytes(signature) : 0;
}

TEST(QuietCommunicatorTest, BooksWhatTheBackendWouldHold) {
  const absl::Status status = RunRanks(2, {}, [](RankHandle& handle) -> absl::Status {
    CpuAllocator allocator;
    QuietCommunicator world(handle.comm(), {.held_bytes = HoldsThePayload});
    LS_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> group,
                        world.Split(0, handle.rank(), "group"));
    const auto tensor = [&](int64_t lines, DType dtype) {
      return Tensor::Empty(allocator, {16 * lines}, dtype, MemoryClass::kWorkspace);
    };
    const auto held = [&] { return allocator.books().live(MemoryClass::kCommunication) / 64; };
    const Tensor small = tensor(1, DType::kF32), large = tensor(4, DType::kF32);
    const auto reduce = [&](const Tensor& x) {
      return group->AllReduce(x, x, ReduceOp::kSum, "gradients");
    };
    Work first = reduce(small);
    EXPECT_EQ(held(), 1);
    Work second = reduce(large);
    EXPECT_EQ(held(), 1 + 4);
    Work third = reduce(small);  // has room in the second one's
    EXPECT_EQ(held(), 1 + 4);
    LS_RETURN_IF_ERROR(first.Wait());
    EXPECT_EQ(held(), 4);
    LS_RETURN_IF_ERROR(second.Wait());
    EXPECT_EQ(held(), 4);
    LS_RETURN_IF_ERROR(third.Wait());
    EXPECT_EQ(held(), 0);
    LS_RETURN_IF_ERROR(group->Broadcast(large, 0, "parameters").Wait());
    // What travels is held for too.
    const Tensor integers = tensor(2, DType::kI32);
    std::fill_n(integers.data<int32_t>(), integers.elements(), handle.rank());
    Work sum = reduce(integers);
    EXPECT_EQ(held(), 2);
    LS_RETURN_IF_ERROR(sum.Wait());
    EXPECT_EQ(integers.data<int32_t>()[31], 0 + 1);
    EXPECT_EQ(held(), 0);
    EXPECT_EQ(allocator.books().peak(MemoryClass::kCommunication), 5 * 64);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace lockstep
