// Stages of a small model on ranks that are threads, against the same model as one stage.

#include <cmath>
#include <numeric>  // std::iota
#include <utility>
#include <vector>

#include "core/run/strategy/stage_pass.h"
#include "core/run/testing/tested_local_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "strategies/stages/stage_links.h"
#include "strategies/stages/tied_parameters.h"

namespace lockstep {
namespace {

using ::testing::IsEmpty;

const std::vector<BlockRange> kOneStage = {{0, 3}};
const std::vector<BlockRange> kThreeStages = {{0, 1}, {1, 2}, {2, 3}};

// Stage s on rank s.
StagePlan OneStageARank(const std::vector<BlockRange>& stages) {
  StagePlan plan = {.stages = stages, .rank_of_stage = std::vector<int>(stages.size())};
  std::iota(plan.rank_of_stage.begin(), plan.rank_of_stage.end(), 0);
  return plan;
}

// Losses and the owner's gradient of one micro-batch, by stages and in one.
TEST(StageExchangeTest, APassThroughStagesHasTheBitsOfOneStage) {
  struct Result {
    double loss = 0;
    std::vector<float> gradient = {};
  };
  const auto run = [](const std::vector<BlockRange>& ranges) {
    Result result;
    ForStages(ranges, [&](LocalModelUnderTest& rank, int index) {
      LocalModel& local_model = rank.local_model();
      const StagePlan plan = OneStageARank(ranges);
      StageLinks links(local_model, plan, rank.mesh().pp());
      TiedParameters tied(local_model, plan, rank.mesh().pp());
      const BatchKind kind = {.samples = 2};
      const Tensor x = rank.kernels().Empty({2, kSquareWidth});
      for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = 0.3f * static_cast<float>(i);
      const Tensor targets = rank.kernels().Empty({2}, DType::kI32);
      targets.data<int32_t>()[0] = 0;
      targets.data<int32_t>()[1] = 2;

      StagePass pass(local_model, local_model.ranges()[0], 0, 0);
      const StageVariables outputs =
          pass.Forward(local_model.has_first() ? StageVariables{.line = local_model.Enter(x)}
                                               : links.TakeInputs(index, kind),
                       {.inputs = x, .targets = targets});
      StageGradients gradients;
      if (!local_model.has_last()) {
        links.SendOutputs(index, kind, outputs);
        gradients = links.TakeGradients(index, kind);
      }
      const StageGradients of_inputs = pass.Backward(std::move(gradients));
      if (!local_model.has_first()) links.SendGradients(index, kind, of_inputs);
      tied.AddGradients();
      links.AwaitSent();
      const double loss =
          ShareLoss(local_model, rank.mesh().dp(), rank.mesh().pp(), plan.last_rank());
      EXPECT_GT(loss, 0) << "stage " << index;
      if (index == 0) result = {loss, Look(rank.weight(0).gradient)};
    });
    return result;
  };
  const Result one = run(kOneStage);
  for (const auto& ranges : {kThreeStages, {{0, 2}, {2, 3}}, {{0, 1}, {1, 3}}}) {
    const Result stages = run(ranges);
    EXPECT_EQ(stages.loss, one.loss);
    EXPECT_EQ(stages.gradient, one.gradient);
  }
}

TEST(TiedParametersTest, GradientsAddUpInTheModelsOrderAndValuesComeBack) {
  ForStages(kThreeStages, [](LocalModelUnderTest& rank, int index) {
    TiedParameters tied(rank.local_model(), OneStageARank(kThreeStages), rank.mesh().pp());
    Kernels& kernels = rank.kernels();
    // In floats (1 + 2^24) - 2^24 is 0 or 1, as it is added.
    const float parts[] = {1, 16777216, -16777216};
    kernels.Fill(rank.weight(index).gradient, parts[index]);
    tied.AddGradients();
    if (index == 0) {
      EXPECT_EQ(rank.weight(0).gradient.data<float>()[0], (parts[0] + parts[1]) + parts[2]);
      kernels.Fill(rank.weight(0).value, 7);
    }
    tied.SendValues();
    EXPECT_EQ(rank.weight(index).value.data<float>()[kSquareWidth * kSquareWidth - 1], 7);
  });
}

TEST(TiedParametersTest, WithoutAGradientNothingChangesByABit) {
  ForStages({{0, 2}, {2, 3}}, [](LocalModelUnderTest& rank, int index) {
    TiedParameters tied(rank.local_model(), OneStageARank({{0, 2}, {2, 3}}), rank.mesh().pp());
    float* own = rank.weight(index == 0 ? 0 : 2).gradient.data<float>();
    const float values[] = {-0.0f, 0.0f, 1e-40f};
    for (int64_t i = 0; i < kSquareWidth * kSquareWidth; ++i) own[i] = values[i % 3];
    // Blocks b and c were not used.
    CompleteGradient(rank.kernels(), rank.weight(index == 0 ? 1 : 2));
    tied.AddGradients();
    for (int64_t i = 0; index == 0 && i < kSquareWidth * kSquareWidth; ++i) {
      EXPECT_EQ(own[i], values[i % 3]);
      EXPECT_EQ(std::signbit(own[i]), std::signbit(values[i % 3])) << i;
    }
  });
}

TEST(TiedParametersTest, WithinAStageGradientsAddUpAndNothingTravels) {
  ForStages(kOneStage, [](LocalModelUnderTest& rank, int) {
    TiedParameters tied(rank.local_model(), OneStageARank(kOneStage), rank.mesh().pp());
    CostPrediction prediction;
    tied.AddTraffic(prediction);
    EXPECT_THAT(prediction.traffic, IsEmpty());
    const float parts[] = {1, 16777216, -16777216};
    for (int i = 0; i < 3; ++i) rank.kernels().Fill(rank.weight(i).gradient, parts[i]);
    tied.AddGradients();
    EXPECT_EQ(rank.weight(0).gradient.data<float>()[0], (parts[0] + parts[1]) + parts[2]);
    tied.SendValues();
  });
}

}  // namespace
}  // namespace lockstep
