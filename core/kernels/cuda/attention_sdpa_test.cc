// What we tell cuDNN's frontend of attention, and what the frontend makes of it: the graph of
// operations is evaluated on the CPU (cudnn_graph_stand_in.cc) and compared with the reference.

#include "core/kernels/cuda/attention_sdpa.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/half.h"
#include "core/base/philox.h"
#include "core/base/testing/scoped_environment.h"
#include "core/kernels/reference.h"
#include "core/tensor/allocator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::cuda {
namespace {

using testing::HasSubstr;
using Pass = AttentionShape::Pass;

float Rounded(float x, DType dtype) {
  return dtype == DType::kF16 ? HalfToFloat(FloatToHalf(x)) : BFloat16ToFloat(FloatToBFloat16(x));
}

class AttentionSdpaTest : public testing::TestWithParam<DType> {
 protected:
  static constexpr int64_t kBatch = 2, kTime = 37, kHeads = 6, kKeyHeads = 2, kWidth = 16;

  static AttentionShape ShapeOf(Pass pass, int64_t key_heads = kKeyHeads) {
    return {.pass = pass,
            .dtype = GetParam(),
            .batch = kBatch,
            .time = kTime,
            .heads = kHeads,
            .key_heads = key_heads,
            .head_width = kWidth};
  }

  Tensor Empty(const Shape& shape, DType dtype) {
    return Tensor::Empty(allocator_, shape, dtype, MemoryClass::kActivations);
  }
  // Random numbers of the dtype in [-1, 1).
  reference::Array Random(const Shape& shape, uint64_t key) {
    reference::Array array(shape);
    for (int64_t i = 0; i < array.elements(); ++i) {
      array.value[static_cast<size_t>(i)] =
          Rounded(2 * Philox(key).Uniform(static_cast<uint64_t>(i), 0) - 1, GetParam());
    }
    return array;
  }
  static uint16_t* Bits(const Tensor& x) { return reinterpret_cast<uint16_t*>(x.raw()); }
  Tensor Upload(const reference::Array& array) {
    const Tensor x = Empty(array.shape, GetParam());
    for (int64_t i = 0; i < array.elements(); ++i) {
      const auto value = static_cast<float>(array[i]);
      Bits(x)[i] = GetParam() == DType::kF16 ? FloatToHalf(value) : FloatToBFloat16(value);
    }
    return x;
  }
  std::vector<double> Download(const Tensor& x) {
    std::vector<double> values;
    for (int64_t i = 0; i < x.elements(); ++i) {
      values.push_back(x.dtype() == DType::kF32   ? x.data<float>()[i]
                       : x.dtype() == DType::kF16 ? HalfToFloat(Bits(x)[i])
                                                  : BFloat16ToFloat(Bits(x)[i]));
    }
    return values;
  }
  // Probabilities, logits' gradients and results are rounded to the dtype: a few of its units.
  static double Tolerance() { return GetParam() == DType::kF16 ? 0.01 : 0.06; }
  void ExpectNear(const Tensor& x, const reference::Array& expected, double tolerance) {
    const std::vector<double> values = Download(x);
    ASSERT_EQ(x.shape(), expected.shape);
    for (int64_t i = 0; i < expected.elements(); ++i) {
      ASSERT_NEAR(values[static_cast<size_t>(i)], expected[i], tolerance) << i;
    }
  }
  absl::Status Run(const AttentionShape& shape, const AttentionTensors& tensors) {
    auto plan = library_->Plan(shape);
    if (!plan.ok()) return plan.status();
    const Tensor workspace = Empty({(*plan)->workspace_bytes()}, DType::kU8);
    return (*plan)->Run(tensors, workspace.raw());
  }

  // Forward and backward agree with the reference.
  void ExpectAttention(int64_t key_heads) {
    Attention attention;
    attention.heads = attention.total_heads = kHeads;
    attention.key_heads = key_heads;
    attention.head_width = kWidth;
    const reference::Array qkv = Random({kBatch, kTime, attention.packed_width()}, 1);
    const reference::Array dy = Random({kBatch, kTime, attention.query_width()}, 2);
    const reference::Attended expected = reference::AttentionForward(attention, qkv);
    AttentionTensors tensors = {.qkv = Upload(qkv),
                                .y = Empty(dy.shape, GetParam()),
                                .log_sum_exp = Empty({kBatch, kHeads, kTime}, DType::kF32)};
    ASSERT_EQ(Run(ShapeOf(Pass::kForward, key_heads), tensors), absl::OkStatus());
    ExpectNear(tensors.y, expected.y, Tolerance());
    ExpectNear(tensors.log_sum_exp, expected.log_sum_exp, 1e-5);
    tensors.dy = Upload(dy);
    tensors.dqkv = Empty(qkv.shape, GetParam());
    ASSERT_EQ(Run(ShapeOf(Pass::kBackward, key_heads), tensors), absl::OkStatus());
    ExpectNear(tensors.dqkv, reference::AttentionBackward(attention, qkv, dy), Tolerance());
  }

  CpuAllocator allocator_;
  int handle_ = 0;  // what the stand-in takes for one
  const std::unique_ptr<AttentionLibrary> library_ =
      CudnnAttention([this] { return reinterpret_cast<cudnnHandle_t>(&handle_); });
};

INSTANTIATE_TEST_SUITE_P(Dtypes, AttentionSdpaTest, testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& dtype) { return std::string(Name(dtype.param)); });

TEST_P(AttentionSdpaTest, OfAsManyHeadsOfKeys) { ExpectAttention(kHeads); }

TEST_P(AttentionSdpaTest, OfGroupedQueries) { ExpectAttention(kKeyHeads); }

TEST_P(AttentionSdpaTest, OfGroupedQueriesOnAnA100) {
  const ScopedEnvironment a100("LOCKSTEP_STAND_IN_CAPABILITY", "80");
  ExpectAttention(kKeyHeads);
}

// The frontend has another graph for those that may differ from call to call, on some GPUs.
TEST_P(AttentionSdpaTest, BackwardAsksForTheGraphThatRepeatsItsBits) {
  for (const char* capability : {"80", "89", "90", "100", "120"}) {
    const ScopedEnvironment gpu("LOCKSTEP_STAND_IN_CAPABILITY", capability);
    EXPECT_EQ(library_->Plan(ShapeOf(Pass::kBackward)).status(), absl::OkStatus()) << capability;
  }
}

TEST_P(AttentionSdpaTest, EnginesThatDoNotRepeatTheirBitsAreRefused) {
  const ScopedEnvironment differs("LOCKSTEP_STAND_IN_NOTE", "1");
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    EXPECT_EQ(library_->Plan(ShapeOf(pass)).status().code(), absl::StatusCode::kUnimplemented);
  }
}

TEST_P(AttentionSdpaTest, AShapeWithoutAnEngineIsRefused) {
  const ScopedEnvironment none("LOCKSTEP_STAND_IN_ENGINES", "0");
  EXPECT_EQ(library_->Plan(ShapeOf(Pass::kForward)).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST_P(AttentionSdpaTest, WhatTheFrontendRefusesIsRefusedWithItsReason) {
  AttentionShape shape = ShapeOf(Pass::kForward);
  shape.head_width = 12;
  EXPECT_THAT(std::string(library_->Plan(shape).status().message()), HasSubstr("multiple of 8"));
}

}  // namespace
}  // namespace lockstep::cuda
