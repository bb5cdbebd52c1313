// Movements of all members, whose exchanges are carried out here by copies, against the serial
// model.

#include "core/comm/mpi/movement.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/conformance/running_case.h"
#include "core/comm/conformance/serial_model.h"
#include "core/comm/conformance/test_memory.h"
#include "core/comm/held_memory.h"
#include "gtest/gtest.h"

namespace lockstep::mpi {
namespace {

Signature SignatureOf(const Case& c) {
  Signature signature{
      .operation = c.operation, .dtype = c.dtype, .reduce_op = c.reduce_op, .count = c.total()};
  if (HasRoot(c.operation)) signature.root = c.root;
  if (c.operation != Operation::kAllReduce && c.operation != Operation::kReduce &&
      c.operation != Operation::kBroadcast && c.operation != Operation::kAllToAll) {
    signature.counts = c.counts;
  }
  return signature;
}

// Carries one exchange of all members out: what one sends, another receives.
void Carry(std::vector<Exchange>& exchanges) {
  for (int to = 0; to < static_cast<int>(exchanges.size()); ++to) {
    for (const PeerBuffer& receive : exchanges[to].receives) {
      auto& sends = exchanges[receive.member].sends;
      const auto send = std::find_if(sends.begin(), sends.end(), [to](const PeerBuffer& buffer) {
        return buffer.member == to;
      });
      ASSERT_NE(send, sends.end()) << receive.member << " sends nothing to " << to;
      ASSERT_EQ(send->bytes, receive.bytes);
      std::memcpy(receive.at, send->at, static_cast<size_t>(send->bytes));
      sends.erase(send);
    }
  }
  for (const Exchange& exchange : exchanges) EXPECT_TRUE(exchange.sends.empty());
}

// Two members may be at different exchanges where they have none with each other; so all are
// carried on until all have something to exchange, or are done.
void Check(const Case& c) {
  SCOPED_TRACE(ToString(c));
  const int size = c.size();
  HostMemory memory;
  std::vector<Tensor> inputs, outputs;
  std::vector<std::unique_ptr<Movement>> movements;
  for (int member = 0; member < size; ++member) {
    inputs.push_back(memory.TensorOf(InputOf(c, member), c.dtype));
    const Bytes nothing(static_cast<size_t>(OutputCount(c, member) * SizeOf(c.dtype)));
    if (c.operation == Operation::kBroadcast && member != c.root) {
      inputs.back() = memory.TensorOf(nothing, c.dtype);  // what is sent lies where it arrives
    }
    const bool same = c.in_place || c.operation == Operation::kBroadcast;
    outputs.push_back(same ? inputs.back() : memory.TensorOf(nothing, c.dtype));
    const auto at = [](const Tensor& t) { return t.defined() ? t.raw() : nullptr; };
    const MemberBuffers own = {.input = at(inputs.back()), .output = at(outputs.back())};
    HeldMemory held;
    movements.push_back(std::make_unique<Movement>(
        SignatureOf(c), size, member, own,
        held.Hold(Movement::HeldBytes(SignatureOf(c), size, own.input == own.output),
                  memory.allocator())));
  }
  std::vector<Exchange> exchanges(static_cast<size_t>(size));
  for (;;) {
    bool any = false;
    for (int member = 0; member < size; ++member) {
      any = movements[member]->Next(&exchanges[member]) || any;
    }
    if (!any) break;
    Carry(exchanges);
    if (testing::Test::HasFailure()) return;
  }
  for (int member = 0; member < size; ++member) {
    if (OutputCount(c, member) == 0) continue;
    EXPECT_TRUE(memory.Read(outputs[member]) == OutputOf(c, member)) << "member " << member;
  }
}

TEST(MovementTest, GivesWhatTheSerialModelSays) {
  for (const Operation operation :
       {Operation::kAllReduce, Operation::kReduceScatter, Operation::kReduce, Operation::kAllGather,
        Operation::kBroadcast, Operation::kAllToAll}) {
    for (const int size : {1, 2, 3, 5}) {
      for (const int64_t chunk : {1, 100, 3'000'000}) {
        if (chunk > 1000 && size > 2) continue;  // several slices: two members show them
        Case c{.operation = operation, .counts = std::vector<int64_t>(size, chunk)};
        c.root = size - 1;
        Check(c);
      }
    }
  }
}

TEST(MovementTest, PartsMayDiffer) {
  for (const Operation operation : {Operation::kReduceScatter, Operation::kAllGather}) {
    Check({.operation = operation, .dtype = DType::kI64, .counts = {5, 0, 1000, 2}});
    Check({.operation = operation, .counts = {2'500'000, 10}});
  }
}

// A slice for each member: of even chunks on cache lines, and at most 8 MiB together.
TEST(MovementTest, HoldsASliceOfEachMember) {
  const auto held = [](Operation operation, int64_t count, int size, bool in_place = false) {
    return Movement::HeldBytes({.operation = operation, .count = count}, size, in_place);
  };
  const auto floats = [](Operation operation, int64_t count, int size) {
    return Movement::HeldBytes({.operation = operation, .dtype = DType::kF32, .count = count}, size,
                               false);
  };
  EXPECT_EQ(floats(Operation::kAllReduce, 1024, 2), 4096);
  EXPECT_EQ(floats(Operation::kReduceScatter, 1024, 4), 4096);
  EXPECT_EQ(floats(Operation::kAllReduce, 1025, 2), 2 * (512 + 16) * 4);
  EXPECT_EQ(floats(Operation::kReduce, 100'000'000, 4), 8 << 20);
  EXPECT_EQ(held(Operation::kAllToAll, 4096, 2, /*in_place=*/true), 4096);
  EXPECT_EQ(held(Operation::kAllToAll, 4096, 2, /*in_place=*/false), 0);
  EXPECT_EQ(floats(Operation::kAllReduce, 0, 2), 0);
  EXPECT_EQ(floats(Operation::kAllReduce, 1024, 1), 0);
  for (const Operation operation :
       {Operation::kAllGather, Operation::kGather, Operation::kScatter, Operation::kBroadcast,
        Operation::kSend, Operation::kRecv, Operation::kBarrier, Operation::kSplit}) {
    EXPECT_EQ(held(operation, 4096, 2), 0) << Name(operation);
  }
}

TEST(MovementTest, InPlace) {
  for (const Operation operation : {Operation::kAllReduce, Operation::kAllToAll}) {
    for (const int64_t chunk : {7, 3'000'000}) {
      Check({.operation = operation, .counts = {chunk, chunk}, .in_place = true});
    }
  }
}

}  // namespace
}  // namespace lockstep::mpi
