#include "strategies/stages/tensor_route.h"

#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/comm/launch.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr BatchKind kFour = {.mode = Pass::Mode::kTrain, .samples = 4};
constexpr BatchKind kEvaluation = {.mode = Pass::Mode::kEvaluate, .samples = 4};
constexpr BatchKind kOne = {.mode = Pass::Mode::kTrain, .samples = 1};

// Runs `send` on rank 0 and `receive` on rank 1, and returns rank 0's traffic.
CommTotals Travel(const std::function<void(RouteStart&, Kernels&)>& send,
                  const std::function<void(RouteEnd&, Kernels&)>& receive) {
  CommTotals traffic;
  const absl::Status status = RunRanks(2, {}, [&](RankHandle& handle) {
    CpuAllocator allocator;
    CpuKernels kernels(allocator);
    if (handle.rank() == 0) {
      RouteStart start(handle.comm(), 1, "things", kernels);
      send(start, kernels);
      start.AwaitSent();
      traffic = handle.ledger().Mark();
    } else {
      RouteEnd end(handle.comm(), 0, "things", kernels);
      receive(end, kernels);
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return traffic;
}

template <typename T>
Tensor Counted(Kernels& kernels, const Shape& shape, DType dtype) {
  const Tensor tensor = kernels.Empty(shape, dtype);
  std::iota(tensor.span<T>().begin(), tensor.span<T>().end(), T{1});
  return tensor;
}

TEST(RouteLayoutTest, ComesBackFromItsCode) {
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  const RoutedTensors tensors = {
      {kernels.Empty({2, 3}, DType::kBF16), true}, {}, {kernels.Empty({}, DType::kI32), false}};
  const std::vector<RouteEntry> entries = {
      {.defined = true, .needs_gradient = true, .dtype = DType::kBF16, .shape = {2, 3}},
      {.defined = false},
      {.defined = true, .dtype = DType::kI32, .shape = {}}};
  EXPECT_EQ(DecodeLayout(EncodeLayout(tensors)), entries);
  EXPECT_EQ(DecodeLayout({}), std::vector<RouteEntry>());
}

TEST(TensorRouteTest, CarriesAllKindsOfTensors) {
  Travel(
      [](RouteStart& start, Kernels& kernels) {
        start.Send(kFour, {{Counted<float>(kernels, {4, 2}, DType::kF32), true},
                           {Counted<int32_t>(kernels, {4}, DType::kI32), false},
                           {},
                           {kernels.Empty({0, 3}, DType::kF16), false}});
      },
      [](RouteEnd& end, Kernels&) {
        const std::vector<RoutedTensor> got = end.Receive(kFour);
        ASSERT_EQ(got.size(), 4u);
        EXPECT_TRUE(got[0].needs_gradient);
        EXPECT_EQ(got[0].tensor.shape(), (Shape{4, 2}));
        EXPECT_EQ(got[0].tensor.data<float>()[7], 8);
        EXPECT_FALSE(got[1].needs_gradient);
        EXPECT_EQ(got[1].tensor.data<int32_t>()[3], 4);
        EXPECT_FALSE(got[2].tensor.defined());
        EXPECT_EQ(got[3].tensor.shape(), (Shape{0, 3}));
        EXPECT_EQ(got[3].tensor.dtype(), DType::kF16);
      });
}

TEST(TensorRouteTest, ShapesAreAnnouncedOnceForEachKindOfBatch) {
  const std::vector<BatchKind> kinds = {kFour, kOne, kFour, kEvaluation, kOne, kFour};
  const CommTotals traffic = Travel(
      [&](RouteStart& start, Kernels& kernels) {
        for (const BatchKind& kind : kinds) {
          start.Send(kind, {{Counted<float>(kernels, {kind.samples, 5}, DType::kF32), false}});
        }
      },
      [&](RouteEnd& end, Kernels&) {
        for (const BatchKind& kind : kinds) {
          EXPECT_EQ(end.Receive(kind)[0].tensor.shape(), (Shape{kind.samples, 5}));
        }
      });
  EXPECT_EQ(traffic.Of(kAnnouncementLabel).calls, 3);  // three kinds
  EXPECT_EQ(traffic.Of(kAnnouncementLabel).wire_bytes, 3 * kAnnouncementBytes);
  EXPECT_EQ(traffic.Of("things").calls, 6);
  EXPECT_EQ(traffic.Of("things").wire_bytes, (4 * 4 + 2) * 5 * 4);
}

TEST(TensorRouteTest, AnnouncesAnyNumberOfTensors) {
  constexpr int kTensors = 100;
  const CommTotals traffic = Travel(
      [](RouteStart& start, Kernels& kernels) {
        std::vector<RoutedTensor> tensors;
        for (int i = 0; i < kTensors; ++i) {
          tensors.push_back({Counted<float>(kernels, {1, i, 1, 2}, DType::kF32), i % 2 == 0});
        }
        start.Send(kOne, std::move(tensors));
      },
      [](RouteEnd& end, Kernels&) {
        const std::vector<RoutedTensor> got = end.Receive(kOne);
        ASSERT_EQ(got.size(), static_cast<size_t>(kTensors));
        for (int i = 0; i < kTensors; ++i) {
          EXPECT_EQ(got[i].tensor.shape(), (Shape{1, i, 1, 2}));
          EXPECT_EQ(got[i].needs_gradient, i % 2 == 0);
        }
      });
  EXPECT_EQ(traffic.Of(kAnnouncementLabel).calls, 7);  // of 128 numbers: 1 + 100 * 8
}

TEST(TensorRouteTest, NothingTravelsAsNothing) {
  Travel([](RouteStart& start, Kernels&) { start.Send(kOne, {}); },
         [](RouteEnd& end, Kernels&) { EXPECT_TRUE(end.Receive(kOne).empty()); });
}

// Receives that have begun and are not over.
int InFlight(const Ledger& ledger) {
  int count = 0;
  for (const LedgerEntry& entry : ledger.Recent()) {
    const bool is_recv = entry.signature.operation == Operation::kRecv;
    if (is_recv && entry.state == LedgerEntry::State::kInFlight) ++count;
  }
  return count;
}

// Rank 1 expects and receives, lists of one tensor of the numbers 0, 1, 2, ..., in the order of
// `kinds`; rank 0 sends them as soon as it can.
void Expecting(const std::vector<BatchKind>& kinds,
               const std::function<void(RouteEnd&, RankHandle&, Allocator&)>& receive) {
  const absl::Status status = RunRanks(2, {}, [&](RankHandle& handle) {
    CpuAllocator allocator;
    CpuKernels kernels(allocator);
    if (handle.rank() == 0) {
      RouteStart start(handle.comm(), 1, "things", kernels);
      for (size_t i = 0; i < kinds.size(); ++i) {
        const Tensor tensor = kernels.Empty({kinds[i].samples, 5});
        kernels.Fill(tensor, static_cast<float>(i));
        start.Send(kinds[i], {{tensor, false}});
      }
      start.AwaitSent();
    } else {
      RouteEnd end(handle.comm(), 0, "things", kernels);
      receive(end, handle, allocator);
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

float ReceiveNumber(RouteEnd& end, const BatchKind& kind) {
  const std::vector<RoutedTensor> got = end.Receive(kind);
  EXPECT_EQ(got[0].tensor.shape(), (Shape{kind.samples, 5}));
  return got[0].tensor.data<float>()[0];
}

TEST(TensorRouteTest, WhatIsExpectedIsReceivedMeanwhileOnceItsKindIsKnown) {
  Expecting({kFour, kFour, kFour, kFour}, [](RouteEnd& end, RankHandle& handle, Allocator&) {
    end.Expect(kFour);
    EXPECT_EQ(InFlight(handle.ledger()), 0);
    EXPECT_EQ(ReceiveNumber(end, kFour), 0);
    end.Expect(kFour);
    end.Expect(kFour);
    EXPECT_EQ(InFlight(handle.ledger()), 2);
    EXPECT_EQ(ReceiveNumber(end, kFour), 1);
    EXPECT_EQ(ReceiveNumber(end, kFour), 2);
    EXPECT_EQ(ReceiveNumber(end, kFour), 3);  // without being expected
  });
}

// Behind a kind that is not known nothing is begun: it would take what is sent before.
TEST(TensorRouteTest, KindsThatAreNotKnownYetArePassedOverAndTheOrderIsKept) {
  Expecting({kFour, kOne, kFour, kEvaluation, kOne, kFour, kOne},
            [](RouteEnd& end, RankHandle& handle, Allocator&) {
              EXPECT_EQ(ReceiveNumber(end, kFour), 0);
              end.Expect(kOne);   // not known
              end.Expect(kFour);  // known, but behind it
              EXPECT_EQ(InFlight(handle.ledger()), 0);
              EXPECT_EQ(ReceiveNumber(end, kOne), 1);
              EXPECT_EQ(ReceiveNumber(end, kFour), 2);
              end.Expect(kEvaluation);
              end.Expect(kOne);
              EXPECT_EQ(InFlight(handle.ledger()), 0);
              EXPECT_EQ(ReceiveNumber(end, kEvaluation), 3);
              end.Expect(kFour);  // still behind one that was passed over
              EXPECT_EQ(InFlight(handle.ledger()), 0);
              EXPECT_EQ(ReceiveNumber(end, kOne), 4);
              EXPECT_EQ(ReceiveNumber(end, kFour), 5);
              end.Expect(kOne);  // now all are known
              EXPECT_EQ(InFlight(handle.ledger()), 1);
              EXPECT_EQ(ReceiveNumber(end, kOne), 6);
            });
}

TEST(TensorRouteTest, WhatIsOnItsWayIsCommunicationAndThenActivations) {
  Expecting({kFour, kFour}, [](RouteEnd& end, RankHandle&, Allocator& allocator) {
    ReceiveNumber(end, kFour);
    EXPECT_EQ(allocator.books().live_total(), 0);
    const int64_t bytes = AlignedBytes(4 * 5 * 4);
    end.Expect(kFour);
    EXPECT_EQ(allocator.books().live(MemoryClass::kCommunication), bytes);
    const std::vector<RoutedTensor> got = end.Receive(kFour);
    EXPECT_EQ(allocator.books().live(MemoryClass::kCommunication), 0);
    EXPECT_EQ(allocator.books().live(MemoryClass::kActivations), bytes);
  });
}

TEST(TensorRouteDeathTest, OtherShapesForTheSameKindAreABrokenPromise) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(Travel(
                   [](RouteStart& start, Kernels& kernels) {
                     start.Send(kOne, {{kernels.Empty({1}, DType::kF32), false}});
                     start.Send(kOne, {{kernels.Empty({2}, DType::kF32), false}});
                   },
                   [](RouteEnd& end, Kernels&) {
                     end.Receive(kOne);
                     end.Receive(kOne);
                   }),
               "things: other tensors than for another batch of 1 samples");
}

}  // namespace
}  // namespace lockstep
