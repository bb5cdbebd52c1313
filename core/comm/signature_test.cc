#include "core/comm/signature.h"

#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

Signature Of(Operation operation, int64_t count, std::vector<int64_t> counts = {}, int root = 0) {
  return {.operation = operation,
          .dtype = DType::kF32,
          .root = root,
          .count = count,
          .counts = std::move(counts)};
}

TEST(SignatureTest, EvenPartsFollowEachOther) {
  const Signature signature = Of(Operation::kAllGather, 12);
  EXPECT_EQ(ChunkOf(signature, 4, 0).begin, 0);
  EXPECT_EQ(ChunkOf(signature, 4, 3).begin, 9);
  EXPECT_EQ(ChunkOf(signature, 4, 3).count, 3);
}

TEST(SignatureTest, UnevenPartsFollowTheirCounts) {
  const Signature signature = Of(Operation::kAllGather, 12, {5, 0, 7});
  EXPECT_EQ(ChunkOf(signature, 3, 1).begin, 5);
  EXPECT_EQ(ChunkOf(signature, 3, 1).count, 0);
  EXPECT_EQ(ChunkOf(signature, 3, 2).begin, 5);
  EXPECT_EQ(ChunkOf(signature, 3, 2).count, 7);
}

TEST(SignatureTest, DescribesArguments) {
  Signature signature = Of(Operation::kReduceScatter, 12, {5, 0, 7});
  EXPECT_EQ(DescribeArguments(signature), "f32 x 12 (5+0+7), sum");
  signature = Of(Operation::kReduce, 12, {}, 2);
  signature.dtype = DType::kI64;
  signature.reduce_op = ReduceOp::kAverage;
  EXPECT_EQ(DescribeArguments(signature), "i64 x 12, average, root 2");
  EXPECT_EQ(DescribeArguments(Of(Operation::kSend, 3, {}, 1)), "f32 x 3, to 1");
  EXPECT_EQ(DescribeArguments(Of(Operation::kRecv, 3, {}, 1)), "f32 x 3, from 1");
  EXPECT_EQ(DescribeArguments(Of(Operation::kBarrier, 0)), "");
}

// 1200 bytes over 4 ranks, one number after the other from the table in the header.
TEST(WireBytesTest, EvenCalls) {
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(WireBytes(Of(Operation::kAllReduce, 300), 4, rank), 1800);
    EXPECT_EQ(WireBytes(Of(Operation::kReduceScatter, 300), 4, rank), 900);
    EXPECT_EQ(WireBytes(Of(Operation::kAllGather, 300), 4, rank), 900);
    EXPECT_EQ(WireBytes(Of(Operation::kAllToAll, 300), 4, rank), 900);
    // Root 2: the chain of a broadcast is 2, 3, 0, 1; that of a reduce ends at 2.
    EXPECT_EQ(WireBytes(Of(Operation::kBroadcast, 300, {}, 2), 4, rank), rank == 1 ? 0 : 1200);
    EXPECT_EQ(WireBytes(Of(Operation::kReduce, 300, {}, 2), 4, rank), rank == 2 ? 0 : 1200);
    EXPECT_EQ(WireBytes(Of(Operation::kGather, 300, {}, 2), 4, rank), rank == 2 ? 0 : 300);
    EXPECT_EQ(WireBytes(Of(Operation::kScatter, 300, {}, 2), 4, rank), rank == 2 ? 900 : 0);
    EXPECT_EQ(WireBytes(Of(Operation::kSend, 300, {}, 2), 4, rank), 1200);
    EXPECT_EQ(WireBytes(Of(Operation::kRecv, 300, {}, 2), 4, rank), 0);
    EXPECT_EQ(WireBytes(Of(Operation::kBarrier, 0), 4, rank), 0);
  }
}

TEST(WireBytesTest, UnevenCalls) {
  const std::vector<int64_t> counts = {5, 0, 7};
  const double gathered[] = {5 * 4 * 2, 0, 7 * 4 * 2};
  const double scattered[] = {7 * 4, 12 * 4, 5 * 4};
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(WireBytes(Of(Operation::kAllGather, 12, counts), 3, rank), gathered[rank]);
    EXPECT_EQ(WireBytes(Of(Operation::kReduceScatter, 12, counts), 3, rank), scattered[rank]);
  }
  EXPECT_DOUBLE_EQ(WireBytes(Of(Operation::kAllReduce, 1), 3, 0), 16.0 / 3);
}

TEST(WireBytesTest, OneRankSendsNothing) {
  for (const Operation operation :
       {Operation::kAllReduce, Operation::kReduceScatter, Operation::kAllGather,
        Operation::kBroadcast, Operation::kReduce, Operation::kGather, Operation::kScatter,
        Operation::kAllToAll}) {
    EXPECT_EQ(WireBytes(Of(operation, 300), 1, 0), 0) << Name(operation);
  }
}

}  // namespace
}  // namespace lockstep
