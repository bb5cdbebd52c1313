#include "strategies/data_parallel/sharded_gradients.h"

#include <memory>
#include <string>
#include <vector>

#include "core/comm/launch.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/layout/model_tensors.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

// A block whose gradient has so many rows of 16 floats.
class Rows : public Block {
 public:
  Rows(const std::string& name, int64_t rows) : Block(name) {
    AddParameter("weight", {rows, 16}, Init::Constant(0));
  }

 protected:
  Variables Forward(Pass& /*pass*/, Variables inputs) override { return inputs; }
};

constexpr int64_t kRow = 16 * sizeof(float);

// Whole gradients of four blocks that two ranks divide, in rows, in a step with these backwards.
int64_t PeakRows(const std::vector<int64_t>& rows, bool sums_in_backward,
                 const std::vector<StageBackward>& backwards) {
  int64_t peak = 0;
  const absl::Status status = RunRanks(2, {}, [&](RankHandle& handle) {
    CpuAllocator allocator;
    CpuKernels kernels(allocator);
    Model model;
    for (size_t i = 0; i < rows.size(); ++i) {
      model.blocks.push_back(std::make_unique<Rows>(std::string(1, 'a' + i), rows[i]));
    }
    ModelLayoutOptions options;
    options.mesh.dp = 2;
    options.divided = Divided::kGradients;
    const ModelLayout layout(TensorsOf(model), options);
    const auto alone = handle.comm().Split(handle.rank(), 0, "alone").value();
    const ShardedGradients gradients(model, layout, handle.rank(),
                                     {.shards = handle.comm(),
                                      .neighbours = handle.comm(),
                                      .replicas = *alone,
                                      .divided = Divided::kGradients},
                                     /*experts=*/nullptr, DType::kF32, 2, sums_in_backward, kernels,
                                     /*hooks=*/{});
    // Half of the whole goes to the other rank for each of two shards.
    CostPrediction sums;
    gradients.AddTraffic(sums);
    EXPECT_EQ(sums.traffic.size(), 1u);
    EXPECT_EQ(sums.traffic[0].wire_bytes, 2 * gradients.partial_bytes());
    if (handle.rank() == 0) peak = gradients.PeakWholeBytes(backwards) / kRow;
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return peak;
}

const StageBackward kWhole = {.stage = {0, 4}, .reaches_inputs = true, .ends_shard = true};

TEST(ShardedGradientsTest, TwoBlocksGradientsStayWhileTheirSumsAreOnTheirWay) {
  EXPECT_EQ(PeakRows({40, 2, 6, 20}, true, {kWhole}), 2 + 6 + 40);
  EXPECT_EQ(PeakRows({40, 2, 6, 80}, true, {kWhole}), 2 + 6 + 80);
}

TEST(ShardedGradientsTest, TheNextShardsBackwardMeetsTheLastSumsOfTheOneBefore) {
  EXPECT_EQ(PeakRows({40, 2, 6, 80}, true, {kWhole, kWhole}), 40 + 6 + 80);
}

TEST(ShardedGradientsTest, AllStayUntilTheLastMicroBatchOfAShard) {
  const StageBackward first = {.stage = {0, 4}, .reaches_inputs = true, .ends_shard = false};
  EXPECT_EQ(PeakRows({40, 2, 6, 80}, true, {first, kWhole}), 40 + 2 + 6 + 80);
}

// Two stages of two blocks, whose gradients are summed when a stage is completed.
TEST(ShardedGradientsTest, WithSeveralStagesAStageIsWholeAtATime) {
  const StageBackward last = {.stage = {2, 4}, .reaches_inputs = true, .ends_shard = true};
  const StageBackward first = {.stage = {0, 2}, .reaches_inputs = true, .ends_shard = true};
  EXPECT_EQ(PeakRows({40, 2, 6, 80}, false, {last, first}), 40 + 2 + 6 + 80);
  EXPECT_EQ(PeakRows({40, 2, 6, 80}, false, {last}), 6 + 80);
}

}  // namespace
}  // namespace lockstep
