#include "strategies/stages/tensor_route.h"

#include <functional>
#include <numeric>
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
  RouteLayout layout;
  layout.entries = {
      {.defined = true, .needs_gradient = true, .dtype = DType::kBF16, .shape = {2, 3}},
      {.defined = false},
      {.defined = true, .dtype = DType::kI32, .shape = {}}};
  EXPECT_EQ(RouteLayout::Decode(layout.Encode()), layout);
  EXPECT_EQ(RouteLayout::Decode({}), RouteLayout());
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
