// Stages of a small model on ranks that are threads, against the same model as one stage.

#include <cmath>
#include <utility>
#include <vector>

#include "core/run/stage_pass.h"
#include "core/run/testing/local_model_under_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "strategies/stages/stage_links.h"
#include "strategies/stages/stage_loss.h"
#include "strategies/stages/tied_parameters.h"

namespace lockstep {
namespace {

using ::testing::IsEmpty;

const std::vector<BlockRange> kOneStage = {{0, 3}};
const std::vector<BlockRange> kThreeStages = {{0, 1}, {1, 2}, {2, 3}};

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

      tied.BeginStep();
      StagePass pass(local_model, local_model.ranges()[0], 0, 0);
      const StageVariables outputs =
          pass.Forward(local_model.has_first() ? StageVariables{.line = local_model.Enter(x)}
                                               : links.TakeInputs(index, kind),
                       targets);
      StageGradients gradients;
      if (!local_model.has_last()) {
        links.SendOutputs(index, kind, outputs);
        gradients = links.TakeGradients(index, kind);
      }
      const StageGradients of_inputs = pass.Backward(std::move(gradients));
      if (!local_model.has_first()) links.SendGradients(index, kind, of_inputs);
      tied.SendGradients();
      for (Parameter* parameter : local_model.parameters()) {
        tied.AwaitGradients(*parameter);
        local_model.CompleteGradient(*parameter);
      }
      links.AwaitSent();
      const double loss =
          ShareLoss(local_model, rank.mesh().dp(), rank.mesh().pp(), plan.last_rank());
      tied.AwaitSent();
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
    rank.weight(index).MarkGradient();
    tied.BeginStep();
    tied.SendGradients();
    if (index == 0) {
      tied.AwaitGradients(rank.weight(0));
      rank.local_model().CompleteGradient(rank.weight(0));
      EXPECT_EQ(rank.weight(0).gradient.data<float>()[0], (parts[0] + parts[1]) + parts[2]);
      kernels.Fill(rank.weight(0).value, 7);
    }
    tied.AwaitSent();
    tied.SendValues();
    EXPECT_EQ(rank.weight(index).value.data<float>()[kSquareWidth * kSquareWidth - 1], 7);
  });
}

TEST(TiedParametersTest, WithoutAGradientNothingChangesByABit) {
  ForStages({{0, 2}, {2, 3}}, [](LocalModelUnderTest& rank, int index) {
    TiedParameters tied(rank.local_model(), OneStageARank({{0, 2}, {2, 3}}), rank.mesh().pp());
    tied.BeginStep();
    tied.SendGradients();  // block c was not used
    if (index == 0) {
      float* own = rank.weight(0).gradient.data<float>();
      const float values[] = {-0.0f, 0.0f, 1e-40f};
      for (int64_t i = 0; i < kSquareWidth * kSquareWidth; ++i) own[i] = values[i % 3];
      const std::vector<float> before = Look(rank.weight(0).gradient);
      rank.weight(0).MarkGradient();
      tied.AwaitGradients(rank.weight(0));
      rank.local_model().CompleteGradient(rank.weight(0));
      for (int64_t i = 0; i < kSquareWidth * kSquareWidth; ++i) {
        EXPECT_EQ(own[i], before[i]);
        EXPECT_EQ(std::signbit(own[i]), std::signbit(before[i])) << i;
      }
    }
    tied.AwaitSent();
  });
}

TEST(TiedParametersTest, WithinAStageNothingTravels) {
  ForStages(kOneStage, [](LocalModelUnderTest& rank, int) {
    TiedParameters tied(rank.local_model(), OneStageARank(kOneStage), rank.mesh().pp());
    CostPrediction prediction;
    tied.AddTraffic(prediction);
    EXPECT_THAT(prediction.traffic, IsEmpty());
    tied.BeginStep();
    tied.SendGradients();
    tied.AwaitGradients(rank.weight(0));
    tied.AwaitSent();
    tied.SendValues();
  });
}

}  // namespace
}  // namespace lockstep
