// Every operation against the serial model.

#include <algorithm>  // std::min
#include <cmath>      // std::isnan
#include <cstddef>
#include <cstdint>
#include <cstring>  // std::memcpy
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/comm/conformance/running_case.h"
#include "core/comm/conformance/suite.h"

namespace lockstep {
namespace {

constexpr DType kNumbers[] = {DType::kF32, DType::kF16, DType::kBF16,
                              DType::kF64, DType::kI32, DType::kI64};
constexpr ReduceOp kReduceOps[] = {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin,
                                   ReduceOp::kMax, ReduceOp::kAverage};
// Elements: none, one, less than the ranks, some, and enough for each path that a backend may have.
constexpr int64_t kTotals[] = {0, 1, 5, 700, 20'000};
// For reductions but the sum, which take the same paths.
constexpr int64_t kFewTotals[] = {3, 2500};

template <typename T>
Bytes BytesOf(const std::vector<T>& values) {
  const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
  return {bytes, bytes + values.size() * sizeof(T)};
}

template <typename T>
std::vector<T> ValuesOf(const Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Runs one operation for all sizes, dtypes, reductions, roots, even and uneven, in and out of
// place.
absl::Status Sweep(Operation operation, RankUnderTest& handle) {
  uint64_t seed = 0;
  const bool uneven_allowed = operation == Operation::kGather || operation == Operation::kScatter ||
                              operation == Operation::kAllGather ||
                              operation == Operation::kReduceScatter;
  std::vector<DType> dtypes(std::begin(kNumbers), std::end(kNumbers));
  if (!Reduces(operation)) dtypes.push_back(DType::kU8);
  for (const DType dtype : dtypes) {
    for (const ReduceOp op : kReduceOps) {
      if (!Reduces(operation) && op != ReduceOp::kSum) continue;
      const bool all_totals = op == ReduceOp::kSum;
      for (const int64_t total :
           all_totals ? absl::MakeConstSpan(kTotals) : absl::MakeConstSpan(kFewTotals)) {
        for (const bool in_place : {false, true}) {
          for (const bool even : {true, false}) {
            if (!even && !uneven_allowed) continue;
            ++seed;
            Case c{.operation = operation,
                   .dtype = dtype,
                   .reduce_op = op,
                   .root = static_cast<int>(seed) % handle.size(),
                   .counts = PartsFor(total, handle.size(), even, in_place, dtype, seed),
                   .in_place = in_place,
                   .seed = seed};
            RunningCase(c, handle.comm(), handle).WaitAndCheck();
            // A rank that has found one mismatch would find hundreds.
            if (testing::Test::HasFailure()) return absl::InternalError(ToString(c));
          }
        }
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

// One operation, in worlds of all sizes.
#define LOCKSTEP_SWEEP(operation)                                                  \
  for (int ranks = 1; ranks <= max_ranks(); ++ranks) {                             \
    RunOk(ranks, [](RankUnderTest& h) { return Sweep(Operation::operation, h); }); \
  }

TEST_P(CommConformance, AllReduce) { LOCKSTEP_SWEEP(kAllReduce); }
TEST_P(CommConformance, ReduceScatter) { LOCKSTEP_SWEEP(kReduceScatter); }
TEST_P(CommConformance, AllGather) { LOCKSTEP_SWEEP(kAllGather); }
TEST_P(CommConformance, Broadcast) { LOCKSTEP_SWEEP(kBroadcast); }
TEST_P(CommConformance, Reduce) { LOCKSTEP_SWEEP(kReduce); }
TEST_P(CommConformance, Gather) { LOCKSTEP_SWEEP(kGather); }
TEST_P(CommConformance, Scatter) { LOCKSTEP_SWEEP(kScatter); }
TEST_P(CommConformance, AllToAll) { LOCKSTEP_SWEEP(kAllToAll); }

// (1e8 + 1) + (-1e8 + 1) is 0 in float; one rank after the other gives 1.
TEST_P(CommConformance, AddsAlongTheTree) {
  if (max_ranks() < 4) return;
  RunOk(4, [](RankUnderTest& handle) -> absl::Status {
    if (handle.arithmetic() == Arithmetic::kAnyOrder) return absl::OkStatus();
    TestMemory& memory = handle.memory();
    const float values[] = {1e8f, 1, -1e8f, 1};
    for (const int64_t count : {1, 16, 1000, 1001, 30'000, 100'003}) {
      const std::vector<float> own(static_cast<size_t>(count), values[handle.rank()]);
      const Tensor x = memory.TensorOf(BytesOf(own), DType::kF32);
      LS_RETURN_IF_ERROR(handle.comm().AllReduce(x, x, ReduceOp::kSum, "gradients").Wait());
      for (const float element : ValuesOf<float>(memory.Read(x))) {
        if (element != 0) return absl::InternalError(absl::StrCat("got ", element));
      }
    }
    return absl::OkStatus();
  });
}

// Each node is rounded to the dtype: (2048 + 1) + 1 is 2048 in half, 2050 if rounded at the end.
TEST_P(CommConformance, RoundsHalfAtEachNode) {
  if (max_ranks() < 3) return;
  RunOk(3, [](RankUnderTest& handle) -> absl::Status {
    if (handle.arithmetic() == Arithmetic::kAnyOrder) return absl::OkStatus();
    TestMemory& memory = handle.memory();
    const uint16_t k2048 = 0x6800;
    const uint16_t k1 = 0x3c00;
    const std::vector<uint16_t> own = {handle.rank() == 0 ? k2048 : k1};
    const Tensor x = memory.TensorOf(BytesOf(own), DType::kF16);
    LS_RETURN_IF_ERROR(handle.comm().AllReduce(x, x, ReduceOp::kSum, "gradients").Wait());
    EXPECT_EQ(ValuesOf<uint16_t>(memory.Read(x))[0], k2048);
    return absl::OkStatus();
  });
}

TEST_P(CommConformance, NanReachesMinAndMaxFromAnyRank) {
  const int ranks = std::min(3, max_ranks());
  RunOk(ranks, [](RankUnderTest& handle) -> absl::Status {
    if (handle.arithmetic() == Arithmetic::kAnyOrder) return absl::OkStatus();
    TestMemory& memory = handle.memory();
    for (int bad = 0; bad < handle.size(); ++bad) {
      for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
        std::vector<float> own(20, static_cast<float>(handle.rank()));
        if (handle.rank() == bad) own[13] = std::numeric_limits<float>::quiet_NaN();
        const Tensor x = memory.TensorOf(BytesOf(own), DType::kF32);
        LS_RETURN_IF_ERROR(handle.comm().AllReduce(x, x, op, "overflow").Wait());
        const std::vector<float> got = ValuesOf<float>(memory.Read(x));
        for (size_t i = 0; i < 20; ++i) EXPECT_EQ(std::isnan(got[i]), i == 13);
      }
    }
    return absl::OkStatus();
  });
}

}  // namespace lockstep
