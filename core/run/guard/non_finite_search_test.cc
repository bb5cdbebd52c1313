#include "core/run/guard/non_finite_search.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "core/comm/launch.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/tensor/allocator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using Direction = ProbedTensor::Direction;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class NonFiniteSearchTest : public ::testing::Test {
 protected:
  // What one rank sees: a [1, 2] tensor whose second element is `value`.
  void See(NonFiniteSearch& search, const std::string& place, int64_t micro_batch, float value,
           Direction direction = Direction::kForward, int64_t padding = 0) {
    const Tensor tensor = kernels_.Empty({1, 2}, DType::kF32);
    tensor.data<float>()[0] = 1;
    tensor.data<float>()[1] = value;
    ProbedTensor probed = {.direction = direction, .place = place, .micro_batch = micro_batch};
    if (padding > 0) probed.features = HeldFeatures{.padding = padding};
    search.Observe(probed, tensor);
  }

  // What is said where each of the searches is a rank's.
  static std::string Said(std::vector<NonFiniteSearch*> searches) {
    std::vector<std::string> said(searches.size());
    const absl::Status status =
        RunRanks(static_cast<int>(searches.size()), {}, [&](RankHandle& handle) -> absl::Status {
          const absl::Status told =
              searches[handle.rank()]->Explain(absl::OutOfRangeError("bad"), handle.comm());
          EXPECT_TRUE(told.ok() || told.code() == absl::StatusCode::kOutOfRange) << told;
          const absl::Status met = handle.comm().Barrier("told").Wait();
          if (!told.ok()) said[handle.rank()] = std::string(told.message());
          return met;
        });
    EXPECT_TRUE(status.ok()) << status;
    std::erase(said, "");
    said.erase(std::unique(said.begin(), said.end()), said.end());
    return said.size() == 1 ? said[0] : "several";
  }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
  const std::vector<std::string> blocks_ = {"stem", "blocks.1", "blocks.10"};
};

TEST_F(NonFiniteSearchTest, BlocksCountAsInTheModelWhateverRanWhen) {
  NonFiniteSearch search(blocks_, kernels_);
  See(search, "stem", 1, 3);
  See(search, "blocks.10.up", 1, kNan);
  See(search, "blocks.1.up", 1, kInfinity);
  See(search, "blocks.1", 1, kNan);
  EXPECT_EQ(Said({&search}),
            "bad. The first tensor that is not finite is the output of blocks.1.up in micro-batch "
            "1");
  See(search, "losses", 0, kNan);
  EXPECT_THAT(Said({&search}), HasSubstr("is losses in micro-batch 0"));
  See(search, "batch.inputs", 0, kNan);
  EXPECT_THAT(Said({&search}), HasSubstr("is batch.inputs in micro-batch 0"));
}

TEST_F(NonFiniteSearchTest, TheRankThatFoundTheFirstSpeaks) {
  NonFiniteSearch stage0(blocks_, kernels_), stage1(blocks_, kernels_), stage2(blocks_, kernels_);
  See(stage0, "stem", 1, kNan);
  See(stage1, "blocks.1.down", 0, kNan);
  See(stage2, "blocks.10", 0, kNan);
  EXPECT_THAT(Said({&stage0, &stage1, &stage2}),
              HasSubstr("the output of blocks.1.down in micro-batch 0"));
}

TEST_F(NonFiniteSearchTest, GradientsAreNamedWhereOutputsAreFinite) {
  NonFiniteSearch search(blocks_, kernels_);
  See(search, "blocks.1", 0, kNan, Direction::kBackward);
  See(search, "blocks.10.up", 0, kNan, Direction::kBackward);
  EXPECT_THAT(Said({&search}), HasSubstr("the gradient of blocks.10.up in micro-batch 0"));
  See(search, "blocks.10", 5, kNan);
  EXPECT_THAT(Said({&search}), HasSubstr("the output of blocks.10 in micro-batch 5"));
}

TEST_F(NonFiniteSearchTest, PaddingIsNoPartOfATensor) {
  NonFiniteSearch search(blocks_, kernels_);
  See(search, "blocks.1", 0, kNan, Direction::kForward, 1);
  EXPECT_EQ(Said({&search, &search}), "bad");  // nothing was found: the error as it is
}

}  // namespace
}  // namespace lockstep
