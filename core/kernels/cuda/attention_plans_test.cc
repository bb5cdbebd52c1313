// Which calls of attention a library serves, and what is kept of its plans: on the CPU, with a
// library that notes its calls in the place of cuDNN.

#include "core/kernels/cuda/attention_plans.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/base/testing/captured_log.h"
#include "core/tensor/rehearsal_allocator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Pass = AttentionShape::Pass;

// What the library was asked for and has run. Refuses shapes of `refused_time`, and fails to run
// those of `failing_time`.
struct Notes {
  std::vector<AttentionShape> planned, run;
  int64_t refused_time = -1, failing_time = -1;
  int64_t workspace_bytes = 4096;  // of plans
  int64_t live_in_run = -1;        // bytes of workspace in the books
};

class NotedPlan final : public AttentionPlan {
 public:
  NotedPlan(const AttentionShape& shape, Allocator& allocator, Notes& notes)
      : shape_(shape), allocator_(allocator), notes_(notes) {}
  int64_t workspace_bytes() const override { return notes_.workspace_bytes; }
  absl::Status Run(const AttentionTensors& /*tensors*/, void* workspace) override {
    EXPECT_NE(workspace, nullptr);
    if (shape_.time == notes_.failing_time) return absl::InternalError("no such kernel image");
    notes_.run.push_back(shape_);
    notes_.live_in_run = allocator_.books().live(MemoryClass::kWorkspace);
    return absl::OkStatus();
  }

 private:
  const AttentionShape shape_;
  Allocator& allocator_;
  Notes& notes_;
};

class NotedLibrary final : public AttentionLibrary {
 public:
  NotedLibrary(Allocator& allocator, Notes& notes) : allocator_(allocator), notes_(notes) {}
  absl::StatusOr<std::unique_ptr<AttentionPlan>> Plan(const AttentionShape& shape) override {
    notes_.planned.push_back(shape);
    if (shape.time == notes_.refused_time) return absl::UnimplementedError("no engine for it");
    return std::make_unique<NotedPlan>(shape, allocator_, notes_);
  }

 private:
  Allocator& allocator_;
  Notes& notes_;
};

class AttentionPlansTest : public testing::Test {
 protected:
  // Grouped queries: 4 heads, 2 of keys.
  static constexpr int64_t kHeads = 4, kKeyHeads = 2, kBatch = 3;

  static Attention Heads(int64_t width) {
    Attention attention;
    attention.heads = attention.total_heads = kHeads;
    attention.key_heads = kKeyHeads;
    attention.head_width = width;
    return attention;
  }
  Tensor Empty(const Shape& shape, DType dtype) {
    return Tensor::Empty(allocator_, shape, dtype, MemoryClass::kActivations);
  }
  AttentionTensors TensorsOf(const Attention& attention, int64_t time, DType dtype) {
    return {.qkv = Empty({kBatch, time, attention.packed_width()}, dtype),
            .y = Empty({kBatch, time, attention.query_width()}, dtype),
            .log_sum_exp = Empty({kBatch, kHeads, time}, DType::kF32)};
  }
  // Whether the library computes forward and backward; the two agree.
  bool Serves(const Attention& attention, int64_t time = 8, DType dtype = DType::kBF16) {
    AttentionTensors tensors = TensorsOf(attention, time, dtype);
    const bool forward = plans_.Forward(attention, tensors);
    tensors.dy = Empty(tensors.y.shape(), dtype);
    tensors.dqkv = Empty(tensors.qkv.shape(), dtype);
    EXPECT_EQ(plans_.Backward(attention, tensors), forward);
    return forward;
  }

  CpuAllocator allocator_;
  Notes notes_;
  AttentionPlans plans_{allocator_, std::make_unique<NotedLibrary>(allocator_, notes_)};
};

TEST_F(AttentionPlansTest, ALibraryServesWhatItHas) {
  EXPECT_TRUE(Serves(Heads(64)));
  EXPECT_TRUE(Serves(Heads(64), 8, DType::kF16));
  EXPECT_TRUE(Serves(Heads(72), 77));
  const AttentionShape shape = {.pass = Pass::kBackward,
                                .dtype = DType::kBF16,
                                .batch = kBatch,
                                .time = 77,
                                .heads = kHeads,
                                .key_heads = kKeyHeads,
                                .head_width = 72};
  EXPECT_EQ(notes_.run.back(), shape);
  EXPECT_EQ(shape.packed_width(), 576);
}

TEST_F(AttentionPlansTest, HeadsOfKeysAreThoseOfQueriesWhereNothingIsSaid) {
  Attention attention = Heads(64);
  attention.key_heads = 0;
  EXPECT_TRUE(Serves(attention));
  EXPECT_EQ(notes_.planned.front().key_heads, kHeads);
}

TEST_F(AttentionPlansTest, WhatOnlyOurKernelsComputeIsNotAskedForAndLoggedOnce) {
  struct Case {
    const char* reason;
    Attention attention;
    DType dtype = DType::kBF16;
  };
  const std::vector<int32_t> first(static_cast<size_t>(kBatch) * 8, 0);
  std::vector<Case> cases = {{"dropout", Heads(64)},
                             {"documents", Heads(64)},
                             {"ranks divide", Heads(64)},
                             {"heads of 20", Heads(20)},
                             {"of f32", Heads(64), DType::kF32}};
  cases[0].attention.dropout.probability = 0.1f;
  cases[1].attention.documents = {first.data(), 8};
  cases[2].attention.total_heads = 2 * kHeads;
  FLAGS_v = 1;
  for (const Case& c : cases) {
    const CapturedLog log;
    for (int call = 0; call < 2; ++call) EXPECT_FALSE(Serves(c.attention, 8, c.dtype)) << c.reason;
    EXPECT_THAT(log.lines(), ElementsAre(HasSubstr(c.reason)));
  }
  FLAGS_v = 0;
  EXPECT_TRUE(notes_.planned.empty());
}

// Where a library may count with 32 bits. The tensors have no memory.
TEST(OwnKernelsOnlyTest, From2To31ElementsOn) {
  RehearsalAllocator allocator;
  Attention attention;
  attention.head_width = 64;
  const auto reason = [&](int64_t time) {
    const Shape shape = {1 << 10, time, attention.packed_width()};
    return OwnKernelsOnly(attention,
                          Tensor::Empty(allocator, shape, DType::kBF16, MemoryClass::kActivations));
  };
  EXPECT_EQ(reason(10922), "");
  EXPECT_THAT(reason(10923), HasSubstr("2^31"));
}

TEST_F(AttentionPlansTest, APlanIsMadeOnceForAShapeAndPass) {
  for (int call = 0; call < 3; ++call) {
    EXPECT_TRUE(Serves(Heads(64)));
    EXPECT_TRUE(Serves(Heads(64), 16));
  }
  EXPECT_EQ(notes_.planned.size(), 4u);
  EXPECT_EQ(notes_.run.size(), 12u);
}

TEST_F(AttentionPlansTest, AShapeThatTheLibraryRefusesIsAskedForOnce) {
  notes_.refused_time = 16;
  const CapturedLog log;
  for (int call = 0; call < 3; ++call) EXPECT_FALSE(Serves(Heads(64), 16));
  EXPECT_EQ(notes_.planned.size(), 2u);  // forward and backward
  EXPECT_THAT(log.lines(), ElementsAre(testing::AllOf(HasSubstr("forward"), HasSubstr("no engine")),
                                       HasSubstr("backward")));
  EXPECT_TRUE(Serves(Heads(64)));
}

TEST_F(AttentionPlansTest, APlanThatWantsTooMuchWorkspaceIsNotUsed) {
  notes_.workspace_bytes = AttentionPlans::kMostWorkspaceBytes;
  EXPECT_TRUE(Serves(Heads(64)));
  ++notes_.workspace_bytes;
  const CapturedLog log;
  for (int call = 0; call < 2; ++call) EXPECT_FALSE(Serves(Heads(64), 16));
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("1024 MiB of workspace"), HasSubstr("backward")));
  EXPECT_EQ(notes_.run.size(), 2u);
}

TEST_F(AttentionPlansTest, TheWorkspaceIsBookedWhileThePassIsQueued) {
  EXPECT_TRUE(Serves(Heads(64)));
  EXPECT_EQ(notes_.live_in_run, notes_.workspace_bytes);
  EXPECT_EQ(allocator_.books().live(MemoryClass::kWorkspace), 0);
}

// Our own kernels do not take over: the bits of a run do not depend on what fails when.
TEST_F(AttentionPlansTest, APlanThatFailsThrowsAndNamesTheKey) {
  notes_.failing_time = 16;
  const Attention attention = Heads(64);
  try {
    (void)plans_.Forward(attention, TensorsOf(attention, 16, DType::kF16));
    FAIL() << "nothing was thrown";
  } catch (const StatusException& error) {
    EXPECT_EQ(error.status().code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(error.status().message()),
                testing::AllOf(HasSubstr("no such kernel image"),
                               HasSubstr("precision.cudnn_attention = false")));
  }
}

TEST_F(AttentionPlansTest, WithoutALibraryNothingIsServedOrLogged) {
  AttentionPlans none(allocator_, nullptr);
  const Attention attention = Heads(64);
  const CapturedLog log;
  EXPECT_FALSE(none.Forward(attention, TensorsOf(attention, 8, DType::kBF16)));
  EXPECT_TRUE(log.lines().empty());
}

}  // namespace
}  // namespace lockstep::cuda
