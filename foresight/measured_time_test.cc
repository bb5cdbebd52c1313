#include "foresight/measured_time.h"

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "core/comm/operation.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

TensorKind Kind(DType dtype, int64_t rows, int64_t columns) {
  TensorKind kind;
  kind.dtype = dtype;
  kind.shape = Shape{rows, columns};
  return kind;
}

// A product [rows, width] x [width, width] without bias and residual.
KernelCall Linear(int64_t rows, int64_t width, DType dtype = DType::kF32) {
  KernelCall call;
  call.kernel = "Linear";
  call.tensors = {Kind(dtype, rows, width), Kind(dtype, width, width), TensorKind(), TensorKind(),
                  Kind(dtype, rows, width)};
  return call;
}

double Flops(int64_t rows, int64_t width) {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(width) * static_cast<double>(width);
}

// A rate that is a power of the extents.
double Seconds(int64_t rows, int64_t width) {
  return Flops(rows, width) /
         (1e9 * std::pow(static_cast<double>(rows), 0.25) * std::sqrt(static_cast<double>(width)));
}

MeasuredKernel Row(int64_t rows, int64_t width, double seconds, int ranks = 1, int threads = 1) {
  MeasuredKernel row;
  row.kernel = "Linear";
  row.ranks = ranks;
  row.threads = threads;
  row.extents = ExtentsOf(Linear(rows, width));
  row.work = Flops(rows, width);
  row.seconds = seconds;
  return row;
}

Measurements Grid() {
  Measurements measured;
  for (const int64_t rows : {64, 256, 1024}) {
    for (const int64_t width : {32, 128, 512}) {
      measured.kernels.push_back(Row(rows, width, Seconds(rows, width)));
    }
  }
  return measured;
}

// Where logarithms of times are linear in those of extents, what lies between measured shapes and
// beside them comes out as it is, but for the ridge that keeps the equations regular.
TEST(MeasuredKernelTimeTest, PowersOfExtentsComeOut) {
  const Measurements measured = Grid();
  const MeasuredKernelTime time(measured, 1, 1);
  for (const auto& [rows, width] :
       std::vector<std::pair<int64_t, int64_t>>{{64, 32}, {128, 64}, {300, 208}, {1000, 500}}) {
    const auto seconds = time.Seconds(Linear(rows, width), Flops(rows, width));
    ASSERT_TRUE(seconds.has_value());
    EXPECT_NEAR(*seconds / Seconds(rows, width), 1, 0.02) << rows << " x " << width;
  }
}

TEST(MeasuredKernelTimeTest, AShapeIsForetoldFromTheOthers) {
  Measurements measured = Grid();
  MeasuredKernel& middle = measured.kernels[4];
  const double right = middle.seconds;
  middle.seconds *= 8;
  const MeasuredKernelTime time(measured, 1, 1);
  EXPECT_NEAR(*time.SecondsFromOthers(middle) / right, 1, 0.02);

  Measurements one;
  one.kernels = {middle};
  EXPECT_EQ(MeasuredKernelTime(one, 1, 1).SecondsFromOthers(middle), std::nullopt);
}

// Beyond the measured shapes, no kernel is faster or slower than all that were measured.
TEST(MeasuredKernelTimeTest, RatesStayInTheirRange) {
  const Measurements measured = Grid();
  const MeasuredKernelTime time(measured, 1, 1);
  EXPECT_NEAR(
      *time.Seconds(Linear(1 << 20, 1 << 12), Flops(1 << 20, 1 << 12)) / Flops(1 << 20, 1 << 12),
      Seconds(1024, 512) / Flops(1024, 512), 1e-20);
}

// Columns that fill their vector registers are one thing, and others another.
TEST(MeasuredKernelTimeTest, PartOfAVectorCounts) {
  Measurements measured;
  // One of 16 columns does all the work of the register, whatever it holds.
  for (const int64_t width : {8, 12, 16, 24, 32, 48, 64, 128}) {
    const int64_t whole = (width + 15) / 16 * 16;
    measured.kernels.push_back(Row(256, width, Flops(256, width) / 1e9 * whole / width));
  }
  const MeasuredKernelTime time(measured, 1, 1);
  EXPECT_NEAR(*time.Seconds(Linear(256, 20), Flops(256, 20)) / Flops(256, 20) * 1e9, 1.6, 0.1);
  EXPECT_NEAR(*time.Seconds(Linear(256, 96), Flops(256, 96)) / Flops(256, 96) * 1e9, 1.0, 0.05);
}

// A rate that has its best at a middling size, as where a cache is outgrown: what lies between
// samples follows its neighbours, not the line through all.
TEST(MeasuredKernelTimeTest, NeighboursCount) {
  const auto seconds = [](double width) {
    const double from_best = std::log2(width / 256);
    return Flops(256, static_cast<int64_t>(width)) / 1e9 * std::exp(0.1 * from_best * from_best);
  };
  Measurements measured;
  for (const int64_t width : {32, 64, 128, 256, 512, 1024, 2048}) {
    measured.kernels.push_back(Row(256, width, seconds(static_cast<double>(width))));
  }
  const MeasuredKernelTime time(measured, 1, 1);
  for (const int64_t width : {192, 256, 384}) {
    EXPECT_NEAR(
        *time.Seconds(Linear(256, width), Flops(256, width)) / seconds(static_cast<double>(width)),
        1, 0.08)
        << width;
  }
}

// Along an extent in which measured shapes do not differ, the rate stays.
TEST(MeasuredKernelTimeTest, OneShapeHasOneRate) {
  Measurements measured;
  measured.kernels = {Row(256, 128, 0.5)};
  const MeasuredKernelTime time(measured, 1, 1);
  EXPECT_NEAR(*time.Seconds(Linear(256, 128), Flops(256, 128)), 0.5, 1e-9);
  EXPECT_NEAR(*time.Seconds(Linear(512, 128), Flops(512, 128)), 1.0, 1e-9);
}

TEST(MeasuredKernelTimeTest, KernelsDTypesAndTensorsAreApart) {
  const Measurements measured = Grid();
  const MeasuredKernelTime time(measured, 1, 1);
  EXPECT_FALSE(time.Seconds(Linear(64, 32, DType::kBF16), 1).has_value());
  KernelCall with_bias = Linear(64, 32);
  with_bias.tensors[2] = Kind(DType::kF32, 1, 32);
  EXPECT_FALSE(time.Seconds(with_bias, 1).has_value());
  KernelCall other = Linear(64, 32);
  other.kernel = "MatMul";
  EXPECT_FALSE(time.Seconds(other, 1).has_value());
}

TEST(MeasuredKernelTimeTest, TheNearestRanksAndThreadsCount) {
  Measurements measured;
  measured.kernels = {Row(256, 128, 1, 1, 8), Row(256, 128, 2, 1, 1), Row(256, 128, 3, 8, 1)};
  const auto seconds = [&](int ranks, int threads) {
    return *MeasuredKernelTime(measured, ranks, threads).Seconds(Linear(256, 128), Flops(256, 128));
  };
  EXPECT_NEAR(seconds(1, 8), 1, 1e-9);
  EXPECT_NEAR(seconds(1, 6), 1, 1e-9);
  EXPECT_NEAR(seconds(1, 1), 2, 1e-9);
  EXPECT_NEAR(seconds(8, 1), 3, 1e-9);
  EXPECT_NEAR(seconds(4, 1), 3, 1e-9);
}

// A kernel that works element by element knows no rows: a shard of parameters is as quick as they
// are whole.
TEST(MeasurementsTest, ElementsHaveNoRows) {
  KernelCall flat, square;
  flat.kernel = square.kernel = "Add";
  for (int i = 0; i < 3; ++i) {
    flat.tensors.push_back(Kind(DType::kF32, 1, 64));
    square.tensors.push_back(Kind(DType::kF32, 8, 8));
  }
  EXPECT_EQ(ExtentsOf(flat), ExtentsOf(square));
  EXPECT_NE(ExtentsOf(Linear(8, 8)), ExtentsOf(Linear(1, 64)));
}

Measurements Calls() {
  Measurements measured;
  for (const int ranks : {2, 8}) {
    for (const auto& [bytes, seconds] : {std::pair(100., 1e-6), {10000., 1e-5}}) {
      measured.calls.push_back({.operation = Operation::kAllReduce,
                                .transport = Transport::kThreads,
                                .ranks = ranks,
                                .bytes = bytes,
                                .seconds = ranks * seconds});
    }
  }
  measured.calls.push_back({.operation = Operation::kSend,
                            .transport = Transport::kThreads,
                            .ranks = 2,
                            .bytes = 100,
                            .seconds = 5e-6});
  return measured;
}

TEST(MeasuredCommTimeTest, BetweenSizesAndBeyond) {
  const MeasuredCommTime time(Calls(), Transport::kThreads);
  const auto all_reduce = [&](double bytes, int ranks) {
    return time.Collective(Operation::kAllReduce, bytes, {.ranks = ranks, .per_node = ranks});
  };
  EXPECT_NEAR(all_reduce(100, 2), 2e-6, 1e-12);
  EXPECT_NEAR(all_reduce(8, 2), 2e-6, 1e-12);
  EXPECT_NEAR(all_reduce(1000, 2), 2e-6 * std::sqrt(10), 1e-12);
  EXPECT_NEAR(all_reduce(20000, 2), 4e-5, 1e-12);
  EXPECT_NEAR(all_reduce(100, 8), 8e-6, 1e-12);
  EXPECT_NEAR(all_reduce(100, 3), 2e-6, 1e-12);
  EXPECT_EQ(all_reduce(100, 1), 0);
  EXPECT_NEAR(time.Message(200, true, 1), 1e-5, 1e-12);
  // Not measured: as an all-reduce.
  EXPECT_NEAR(time.Collective(Operation::kGather, 100, {.ranks = 2, .per_node = 2}), 2e-6, 1e-12);
}

TEST(MeasuredCommTimeTest, TransportsAreApart) {
  const MeasuredCommTime time(Calls(), Transport::kMpi);
  EXPECT_EQ(time.Collective(Operation::kAllReduce, 100, {.ranks = 2, .per_node = 2}), 0);
}

TEST(MeasuredCommTimeTest, WaitsByTheTimeBetweenMeetings) {
  Measurements measured;
  measured.waits = {{.ranks = 2, .apart = 1e-3, .seconds = 1e-5},
                    {.ranks = 2, .apart = 1e-1, .seconds = 1e-4},
                    {.ranks = 8, .apart = 1e-3, .seconds = 3e-5}};
  const MeasuredCommTime time(measured, Transport::kThreads);
  const auto wait = [&](double apart, int ranks) {
    return time.Wait(apart, {.ranks = ranks, .per_node = ranks});
  };
  EXPECT_NEAR(wait(1e-3, 2), 1e-5, 1e-12);
  EXPECT_NEAR(wait(1e-2, 2), (1e-5 + 1e-4) / 2, 1e-12);
  EXPECT_NEAR(wait(0, 2), 1e-5, 1e-12);
  EXPECT_NEAR(wait(1, 2), 1e-4, 1e-12);
  EXPECT_NEAR(wait(1e-3, 7), 3e-5, 1e-12);
  EXPECT_EQ(wait(1e-3, 1), 0);
  const MeasuredCommTime others(measured, Transport::kMpi);
  EXPECT_EQ(others.Wait(1e-3, {.ranks = 2, .per_node = 2}), 0);
}

TEST(MeasurementsTest, AWaitIsALine) {
  const MeasuredWait wait = {
      .transport = Transport::kMpi, .ranks = 4, .apart = 2.5e-3, .seconds = 3e-5};
  EXPECT_EQ(ToText(wait), "wait mpi 4 : 0.0025 in 3e-05");
  const auto read = ParseMeasuredWait(ToText(wait));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->transport, wait.transport);
  EXPECT_EQ(read->ranks, wait.ranks);
  EXPECT_EQ(read->apart, wait.apart);
  EXPECT_EQ(read->seconds, wait.seconds);
  for (const char* wrong : {"wait mpi 4 : 0.0025", "wait mpi 1 : 0.0025 in 3e-05",
                            "wait tcp 4 : 0.0025 in 3e-05", "rest mpi 4 : 0.0025 in 3e-05"}) {
    EXPECT_FALSE(ParseMeasuredWait(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace lockstep
