#include "tools/bench/timed_call.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

constexpr bool kInPlace = true;
constexpr bool kOutOfPlace = false;

TimedCall Call(Operation operation, int ranks, int64_t bytes, bool in_place = kOutOfPlace) {
  return CallOfSize(operation, DType::kF32, ranks, bytes, in_place);
}

TEST(TimedCallTest, NamesAreFoundAndUnknownOnesSuggestTheNearest) {
  ASSERT_EQ(TimedOperations().size(), 9u);
  for (const Operation operation : TimedOperations()) {
    EXPECT_EQ(*TimedOperation(TimedName(operation)), operation);
  }
  EXPECT_EQ(*TimedOperation("send_recv"), Operation::kSend);
  EXPECT_EQ(*TimedDType("i64"), DType::kI64);
  EXPECT_THAT(std::string(TimedOperation("allreduce").status().message()),
              HasSubstr("did you mean all_reduce?"));
  EXPECT_THAT(std::string(TimedDType("f31").status().message()), HasSubstr("f32, f64, i32, i64"));
}

// From the formulas of nccl-tests' doc/PERFORMANCE.md, for 2 and 4 ranks.
TEST(TimedCallTest, BusFactorsAreThoseOfNcclTests) {
  EXPECT_EQ(BusFactor(Operation::kAllReduce, 2), 1);
  EXPECT_EQ(BusFactor(Operation::kAllReduce, 4), 1.5);
  EXPECT_EQ(BusFactor(Operation::kReduceScatter, 2), 0.5);
  EXPECT_EQ(BusFactor(Operation::kReduceScatter, 4), 0.75);
  EXPECT_EQ(BusFactor(Operation::kAllGather, 4), 0.75);
  EXPECT_EQ(BusFactor(Operation::kGather, 4), 0.75);
  EXPECT_EQ(BusFactor(Operation::kScatter, 4), 0.75);
  EXPECT_EQ(BusFactor(Operation::kAllToAll, 2), 0.5);
  EXPECT_EQ(BusFactor(Operation::kAllToAll, 4), 0.75);
  EXPECT_EQ(BusFactor(Operation::kBroadcast, 4), 1);
  EXPECT_EQ(BusFactor(Operation::kReduce, 4), 1);
  EXPECT_EQ(BusFactor(Operation::kSend, 4), 1);
}

TEST(TimedCallTest, SizesAreRoundedUpToEqualParts) {
  EXPECT_EQ(Call(Operation::kAllReduce, 2, 4).elements, 1);
  EXPECT_EQ(Call(Operation::kAllReduce, 2, 5).elements, 2);
  EXPECT_EQ(Call(Operation::kReduceScatter, 2, 4).elements, 2);
  EXPECT_EQ(Call(Operation::kAllToAll, 3, 4).bytes(), 12);
  EXPECT_EQ(Call(Operation::kGather, 4, 1000).part(), 63);  // 250 elements become 252
  // In place a part is a multiple of 64 bytes.
  EXPECT_EQ(Call(Operation::kAllGather, 2, 4, kInPlace).bytes(), 128);
  EXPECT_EQ(Call(Operation::kAllGather, 2, 129, kInPlace).bytes(), 256);
  EXPECT_EQ(Call(Operation::kAllReduce, 2, 4, kInPlace).bytes(), 4);
  EXPECT_FALSE(Call(Operation::kSend, 2, 4, kInPlace).in_place);
  EXPECT_EQ(CallOfSize(Operation::kAllReduce, DType::kF64, 2, 4, kOutOfPlace).bytes(), 8);
}

struct Bytes {
  int64_t read;
  int64_t written;
  bool operator==(const Bytes&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Bytes& bytes) {
  return out << bytes.read << " read, " << bytes.written << " written";
}

// Bytes that all ranks together move.
Bytes Moved(Operation operation, bool in_place) {
  const TimedCall call = Call(operation, 4, 4096, in_place);
  const Traffic traffic = LeastTraffic(call);
  return {4 * traffic.reads * traffic.stream_bytes, 4 * traffic.writes * traffic.stream_bytes};
}

// 4 ranks and a payload of 4096 bytes, so that a part has 1024.
TEST(TimedCallTest, LeastTrafficReadsInputsOnceAndWritesOutputsOnce) {
  EXPECT_EQ(Moved(Operation::kAllReduce, kOutOfPlace), (Bytes{16384, 16384}));
  EXPECT_EQ(Moved(Operation::kReduceScatter, kOutOfPlace), (Bytes{16384, 4096}));
  EXPECT_EQ(Moved(Operation::kAllGather, kOutOfPlace), (Bytes{4096, 16384}));
  EXPECT_EQ(Moved(Operation::kBroadcast, kOutOfPlace), (Bytes{4096, 12288}));
  EXPECT_EQ(Moved(Operation::kReduce, kOutOfPlace), (Bytes{16384, 4096}));
  EXPECT_EQ(Moved(Operation::kGather, kOutOfPlace), (Bytes{4096, 4096}));
  EXPECT_EQ(Moved(Operation::kScatter, kOutOfPlace), (Bytes{4096, 4096}));
  EXPECT_EQ(Moved(Operation::kAllToAll, kOutOfPlace), (Bytes{16384, 16384}));
  EXPECT_EQ(Moved(Operation::kSend, kOutOfPlace), (Bytes{16384, 16384}));
}

TEST(TimedCallTest, LeastTrafficLeavesWhatIsInItsPlace) {
  EXPECT_EQ(Moved(Operation::kAllReduce, kInPlace), (Bytes{16384, 16384}));
  EXPECT_EQ(Moved(Operation::kReduceScatter, kInPlace), (Bytes{16384, 4096}));
  EXPECT_EQ(Moved(Operation::kAllGather, kInPlace), (Bytes{4096, 12288}));
  EXPECT_EQ(Moved(Operation::kReduce, kInPlace), (Bytes{16384, 4096}));
  EXPECT_EQ(Moved(Operation::kGather, kInPlace), (Bytes{3072, 3072}));
  EXPECT_EQ(Moved(Operation::kScatter, kInPlace), (Bytes{3072, 3072}));
  EXPECT_EQ(Moved(Operation::kAllToAll, kInPlace), (Bytes{12288, 12288}));
}

// Elsewhere, what is in place is left alone, and the rest goes from rank to rank.
TEST(TimedCallTest, ReductionsAndExchangesOverwriteWhatTheyRead) {
  const auto overwrites = [](Operation operation) {
    EXPECT_FALSE(LeastTraffic(Call(operation, 2, 4096)).in_place);
    return LeastTraffic(Call(operation, 2, 4096, kInPlace)).in_place;
  };
  EXPECT_TRUE(overwrites(Operation::kAllReduce));
  EXPECT_TRUE(overwrites(Operation::kReduceScatter));
  EXPECT_TRUE(overwrites(Operation::kReduce));
  EXPECT_TRUE(overwrites(Operation::kAllToAll));
  EXPECT_FALSE(overwrites(Operation::kAllGather));
  EXPECT_FALSE(overwrites(Operation::kBroadcast));
  EXPECT_FALSE(overwrites(Operation::kGather));
  EXPECT_FALSE(overwrites(Operation::kScatter));
  EXPECT_FALSE(overwrites(Operation::kSend));
}

}  // namespace
}  // namespace lockstep
