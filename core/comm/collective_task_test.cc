#include "core/comm/collective_task.h"

#include <algorithm>  // std::max
#include <cstddef>
#include <cstdint>
#include <cstring>  // std::memcpy
#include <numeric>  // std::accumulate, std::iota
#include <vector>

#include "absl/container/inlined_vector.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

// Copies word by word; counts what it reads.
class CountingMover final : public Mover {
 public:
  explicit CountingMover(bool reads_once) : reads_once_(reads_once) {}

  void Copy(std::byte* to, const std::byte* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    read += bytes;
  }
  void CopyToAll(absl::Span<std::byte* const> to, const std::byte* from, int64_t bytes) override {
    if (!reads_once_) return Mover::CopyToAll(to, from, bytes);
    for (std::byte* place : to) std::memcpy(place, from, static_cast<size_t>(bytes));
    read += to.empty() ? 0 : bytes;
  }
  bool reads_once() const override { return reads_once_; }
  void Reduce(DType, ReduceOp, absl::Span<const std::byte* const>, absl::Span<std::byte* const>,
              int64_t, int64_t) override {
    FAIL() << "nothing is reduced here";
  }
  void Swap(std::byte*, std::byte*, int64_t) override { FAIL() << "nothing is swapped here"; }

  int64_t read = 0;

 private:
  const bool reads_once_;
};

constexpr int kMembers = 3;

// All members' memory in one collective of `counts` elements of i32 each, with root 1. In place,
// a member's input is its chunk of its output, or the root's output its chunk of its input.
struct Memory {
  Memory(Operation operation, const std::vector<int64_t>& counts, bool in_place) {
    signature.operation = operation;
    signature.dtype = DType::kI32;
    signature.counts = counts;
    signature.root = 1;
    signature.count = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    for (int member = 0; member < kMembers; ++member) {
      auto& in = inputs.emplace_back(static_cast<size_t>(signature.count));
      std::iota(in.begin(), in.end(), 1000 * (member + 1));
      outputs.emplace_back(static_cast<size_t>(signature.count), -1);
    }
    for (int member = 0; member < kMembers; ++member) {
      auto& in = inputs[static_cast<size_t>(member)];
      auto& out = outputs[static_cast<size_t>(member)];
      const Chunk own = ChunkOf(signature, kMembers, member);
      MemberBuffers buffers{.input = Raw(in.data()), .output = Raw(out.data())};
      const bool root = member == signature.root;
      if (in_place && operation == Operation::kScatter && root) {
        buffers.output = Raw(in.data() + own.begin);
      } else if (in_place && operation == Operation::kBroadcast && root) {
        buffers.output = Raw(in.data());
      } else if (in_place && (operation == Operation::kAllGather ||
                              (operation == Operation::kGather && root))) {
        std::memcpy(out.data() + own.begin, in.data(), static_cast<size_t>(own.count) * 4);
        buffers.input = Raw(out.data() + own.begin);
      }
      members.push_back(buffers);
    }
  }

  static std::byte* Raw(int32_t* data) { return reinterpret_cast<std::byte*>(data); }

  // Elements of a member's output, as it reads them.
  std::vector<int32_t> Output(int member) const {
    const auto* begin = reinterpret_cast<const int32_t*>(members[member].output);
    const bool own = signature.operation == Operation::kScatter;
    const int64_t count = own ? ChunkOf(signature, kMembers, member).count : signature.count;
    return {begin, begin + count};
  }

  Signature signature;
  std::vector<std::vector<int32_t>> inputs, outputs;
  absl::InlinedVector<MemberBuffers, 16> members;
};

// The first element of what member `from` brings for `to`, and its place in the output.
std::vector<int32_t> Expected(const Memory& memory, int member) {
  const Operation operation = memory.signature.operation;
  const auto value = [](int from, int64_t i) {
    return static_cast<int32_t>(1000 * (from + 1) + i);
  };
  std::vector<int32_t> expected;
  if (operation == Operation::kBroadcast) {
    for (int64_t i = 0; i < memory.signature.count; ++i) expected.push_back(value(1, i));
  } else if (operation == Operation::kScatter) {
    const Chunk own = ChunkOf(memory.signature, kMembers, member);
    for (int64_t i = 0; i < own.count; ++i) expected.push_back(value(1, own.begin + i));
  } else if (operation == Operation::kGather && member != memory.signature.root) {
    expected.assign(static_cast<size_t>(memory.signature.count), -1);
  } else {
    for (int from = 0; from < kMembers; ++from) {
      const Chunk chunk = ChunkOf(memory.signature, kMembers, from);
      for (int64_t i = 0; i < chunk.count; ++i) expected.push_back(value(from, i));
    }
  }
  return expected;
}

const std::vector<Operation>& Copying() {
  static const auto& operations = *new std::vector<Operation>{
      Operation::kBroadcast, Operation::kAllGather, Operation::kGather, Operation::kScatter};
  return operations;
}

// However many tasks share the work, in place or not, read once or as often as it is written.
TEST(CollectiveTaskTest, TasksTogetherFillAllOutputs) {
  for (const Operation operation : Copying()) {
    for (const std::vector<int64_t>& counts :
         {std::vector<int64_t>{100, 100, 100}, {7, 200, 0}, {0, 0, 65}, {1, 0, 2}}) {
      for (const bool in_place : {false, true}) {
        for (const bool reads_once : {false, true}) {
          for (const int tasks : {1, 2, 3, 5}) {
            Memory memory(operation, counts, in_place);
            CountingMover mover(reads_once);
            for (int task = 0; task < tasks; ++task) {
              RunTask(memory.signature, memory.members, {.index = task, .count = tasks}, mover);
            }
            for (int member = 0; member < kMembers; ++member) {
              EXPECT_EQ(memory.Output(member), Expected(memory, member))
                  << Name(operation) << " member " << member << " in place " << in_place
                  << " tasks " << tasks << " reads once " << reads_once;
            }
          }
        }
      }
    }
  }
}

int64_t MostRead(Operation operation, bool in_place, bool reads_once) {
  int64_t most = 0;
  for (int task = 0; task < kMembers; ++task) {
    Memory memory(operation, {320, 320, 320}, in_place);
    CountingMover mover(reads_once);
    RunTask(memory.signature, memory.members, {.index = task, .count = kMembers}, mover);
    most = std::max(most, mover.read);
  }
  return most;
}

// In place, the root's own chunk stays where it is, and the root helps with the others'.
TEST(CollectiveTaskTest, TasksShareTheWorkEvenly) {
  constexpr int64_t kChunk = 320 * 4;
  for (const Operation operation : {Operation::kGather, Operation::kScatter}) {
    EXPECT_EQ(MostRead(operation, false, false), kChunk) << Name(operation);
    EXPECT_LE(MostRead(operation, true, false), kChunk * 2 / 3 + 64) << Name(operation);
  }
}

TEST(CollectiveTaskTest, WhatIsBroughtToAllIsReadOnce) {
  constexpr int64_t kChunk = 320 * 4;
  EXPECT_EQ(MostRead(Operation::kAllGather, false, false), 3 * kChunk);
  EXPECT_EQ(MostRead(Operation::kAllGather, true, false), 2 * kChunk);
  EXPECT_EQ(MostRead(Operation::kAllGather, false, true), kChunk);
  EXPECT_EQ(MostRead(Operation::kAllGather, true, true), kChunk);
}

}  // namespace
}  // namespace lockstep
