// Conformance with torchgpipe, "deferred batch norm": each micro-batch is normalised by its own
// statistics, and the running estimate moves once a step, as that of the whole batch would; or once
// for each micro-batch, where it is not deferred.
//
// Not here: converting a model. A run's batch normalisations all defer, or none does.

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/operations.h"
#include "core/nn/layers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "strategies/gpipe/gpipe.h"
#include "strategies/schedules/named_schedules.h"
#include "strategies/single/single.h"
#include "strategies/stages/testing/probe.h"
#include "strategies/stages/testing/tested_pipeline.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

using ::testing::FloatNear;
using ::testing::Pointwise;

constexpr int64_t kSamples = 16;
constexpr float kRate = 0.1f;

// fp32, after some hundred operations on numbers of order 1.
constexpr float kRounding = 5e-6f;

class NormBlock : public Block {
 public:
  explicit NormBlock(std::optional<float> momentum)
      : Block("norm"),
        norm_(AddChild<BatchNormLayer>("layer", kProbeWidth, Activation::kNone, momentum)) {
    cost.output_elements = kProbeWidth;
  }

 protected:
  Variables Forward(Pass& pass, Variables inputs) override { return {norm_(pass, inputs[0])}; }

 private:
  BatchNormLayer& norm_;
};

// A normalisation of the inputs, and a product: on a stage each.
std::function<Model()> NormAndProduct(std::optional<float> momentum = 0.1f) {
  return [momentum] {
    Model model = MakeProbes({{}});
    model.blocks.insert(model.blocks.begin(), std::make_unique<NormBlock>(momentum));
    return model;
  };
}

PipelineUnderTest Pipeline(int chunks, std::optional<float> momentum = 0.1f) {
  return {.make_model = NormAndProduct(momentum),
          .schedule = GPipeSchedule(2, chunks),
          .samples = kSamples};
}

// Running mean and variance.
struct Estimate {
  std::vector<float> mean = std::vector<float>(kProbeWidth, 0.0f);
  std::vector<float> variance = std::vector<float>(kProbeWidth, 1.0f);

  static Estimate Of(LocalModel& local_model) {
    const RunningStatistics& layer = *local_model.model().Statistics()[0];
    const auto copy = [](const Tensor& tensor) {
      return std::vector<float>(tensor.span<float>().begin(), tensor.span<float>().end());
    };
    return {copy(layer.mean), copy(layer.variance)};
  }

  // As torch's BatchNorm moves it with a whole batch [samples, width] at once.
  void Update(const Tensor& batch, double momentum) {
    const auto x = batch.span<float>();
    const auto samples = static_cast<double>(batch.shape()[0]);
    for (size_t c = 0; c < kProbeWidth; ++c) {
      double sum = 0, squares = 0;
      for (size_t i = c; i < x.size(); i += kProbeWidth) sum += x[i];
      for (size_t i = c; i < x.size(); i += kProbeWidth)
        squares += std::pow(x[i] - sum / samples, 2);
      const auto move = [momentum](float& estimate, double towards) {
        estimate = static_cast<float>(estimate + momentum * (towards - estimate));
      };
      move(mean[c], sum / samples);
      move(variance[c], squares / (samples - 1));
    }
  }
};

void ExpectNear(const Estimate& actual, const Estimate& expected) {
  EXPECT_THAT(actual.mean, Pointwise(FloatNear(kRounding), expected.mean));
  EXPECT_THAT(actual.variance, Pointwise(FloatNear(kRounding), expected.variance));
}

class ChunksTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(DeferredBatchNorm, ChunksTest, ::testing::Values(1, 4));

// Deferring changes nothing in outputs and gradients.
TEST_P(ChunksTest, Transparency) {
  for (const Checkpointing checkpointing :
       {Checkpointing::kAlways, Checkpointing::kExceptLast, Checkpointing::kNever}) {
    PipelineUnderTest pipeline = Pipeline(GetParam());
    pipeline.checkpointing = checkpointing;
    const auto outcome = RunPipeline(pipeline);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(*outcome, WithoutPipeline(pipeline));
  }
}

// A momentum, or none: the cumulative average. A recompute counts nothing twice.
TEST_P(ChunksTest, RunningStatistics) {
  for (const std::optional<float> momentum : {std::optional<float>(0.1f), std::optional<float>()}) {
    for (const Checkpointing checkpointing :
         {Checkpointing::kAlways, Checkpointing::kExceptLast, Checkpointing::kNever}) {
      PipelineUnderTest pipeline = Pipeline(GetParam(), momentum);
      pipeline.checkpointing = checkpointing;
      pipeline.steps = 0;
      const auto outcome = RunPipeline(pipeline, [&](RankUnderTest& rank) {
        Estimate expected;
        for (int64_t step = 0; step < 3; ++step) {
          rank.Step(step);
          rank.UpdateStatistics();
          const Tensor batch = rank.MakeBatch(step * kSamples, kSamples).inputs;
          expected.Update(batch, momentum ? *momentum : 1.0 / static_cast<double>(step + 1));
          if (rank.index() == 0) ExpectNear(Estimate::Of(rank.local_model()), expected);
        }
      });
      ASSERT_TRUE(outcome.ok()) << outcome.status();
    }
  }
}

// Sixteen samples in micro-batches of 4, 3, 3, 3 and 3; and the next step as if nothing had been.
TEST(DeferredBatchNormTest, UnevenMicroBatchesWeighWhatTheyHave) {
  PipelineUnderTest pipeline = Pipeline(5);
  pipeline.steps = 0;
  const auto outcome = RunPipeline(pipeline, [](RankUnderTest& rank) {
    Estimate expected;
    for (int64_t step = 0; step < 2; ++step) {
      rank.Step(step);
      rank.UpdateStatistics();
      expected.Update(rank.MakeBatch(step * kSamples, kSamples).inputs, 0.1);
    }
    if (rank.index() == 0) ExpectNear(Estimate::Of(rank.local_model()), expected);
  });
  ASSERT_TRUE(outcome.ok()) << outcome.status();
}

// Not deferred: as torch's BatchNorm that is given the micro-batches of 4, 3, 3, 3 and 3 samples
// one after the other. A recompute moves nothing twice.
TEST(DeferredBatchNormTest, NotDeferredEachMicroBatchMovesTheEstimate) {
  for (const std::optional<float> momentum : {std::optional<float>(0.1f), std::optional<float>()}) {
    for (const Checkpointing checkpointing :
         {Checkpointing::kAlways, Checkpointing::kExceptLast, Checkpointing::kNever}) {
      PipelineUnderTest pipeline = Pipeline(5, momentum);
      pipeline.deferred_batch_norm = false;
      pipeline.checkpointing = checkpointing;
      pipeline.steps = 0;
      const auto outcome = RunPipeline(pipeline, [&](RankUnderTest& rank) {
        Estimate expected;
        double updates = 0;
        for (int64_t step = 0; step < 2; ++step) {
          rank.Step(step);
          rank.UpdateStatistics();
          int64_t first = step * kSamples;
          for (const int64_t samples : {4, 3, 3, 3, 3}) {
            ++updates;
            expected.Update(rank.MakeBatch(first, samples).inputs,
                            momentum ? *momentum : 1 / updates);
            first += samples;
          }
          if (rank.index() == 0) ExpectNear(Estimate::Of(rank.local_model()), expected);
        }
      });
      ASSERT_TRUE(outcome.ok()) << outcome.status();
    }
  }
}

// Evaluation normalises by the estimate, gathers nothing and does not move it.
TEST(DeferredBatchNormTest, Evaluation) {
  const auto outcome = RunPipeline(Pipeline(4), [](RankUnderTest& rank) {
    LocalModel& local_model = rank.local_model();
    rank.UpdateStatistics();
    Estimate before;
    if (rank.index() == 0) before = Estimate::Of(local_model);
    std::vector<EvaluationSums> sums;
    for (int i = 0; i < 2; ++i) sums.push_back(rank.runner().Evaluate(rank.MakeBatch(0, 5)));
    EXPECT_EQ(sums[0].loss, sums[1].loss);
    // One sample alone has no statistics of its own to speak of.
    EvaluationSums one_by_one;
    for (int i = 0; i < 5; ++i) {
      one_by_one.loss.Add(rank.runner().Evaluate(rank.MakeBatch(i, 1)).loss);
    }
    EXPECT_NEAR(one_by_one.loss.Total(), sums[0].loss.Total(), 1e-5);
    if (rank.index() == 1) {
      EXPECT_GT(sums[0].loss.Total(), 0);
    }
    if (rank.index() == 0) ExpectNear(Estimate::Of(local_model), before);
  });
  ASSERT_TRUE(outcome.ok()) << outcome.status();
}

// The samples of four micro-batches are the same, so that each has the statistics of all of them:
// five steps of SGD are those of one batch normalised at once. The estimate is of 16 samples, not
// of 4.
TEST(DeferredBatchNormTest, Optimize) {
  struct Trained {
    StepOutcome last;
    Estimate estimate;
    double evaluated = 0;
  };
  const auto train = [](int chunks) {
    Trained trained;
    PipelineUnderTest pipeline = Pipeline(chunks);
    pipeline.steps = 0;
    pipeline.make_batch = [](Kernels& kernels, int64_t first, int64_t samples) {
      const Batch batch = {.inputs = kernels.Empty({samples, kProbeWidth}),
                           .targets = kernels.Empty({samples}, DType::kI32)};
      for (int64_t i = 0; i < samples; ++i) {
        const int64_t sample = first / kSamples * 4 + i % 4;
        for (int64_t c = 0; c < kProbeWidth; ++c) {
          const auto number = static_cast<float>((sample * 37 + c * 11 + sample * c * 5) % 29);
          batch.inputs.data<float>()[i * kProbeWidth + c] = number / 10 - 1;
        }
        batch.targets.data<int32_t>()[i] = static_cast<int32_t>(sample % kProbeWidth);
      }
      return batch;
    };
    const auto outcome = RunPipeline(pipeline, [&](RankUnderTest& rank) {
      for (int64_t step = 0; step < 5; ++step) {
        rank.Step(step);
        rank.UpdateStatistics();
        for (Parameter* parameter : rank.local_model().parameters()) {
          for (int64_t i = 0; i < parameter->value.elements(); ++i) {
            parameter->value.data<float>()[i] -= kRate * parameter->gradient.data<float>()[i];
          }
        }
      }
      const double evaluated = rank.runner().Evaluate(rank.MakeBatch(0, kSamples)).loss.Total();
      if (rank.index() == 0) trained.estimate = Estimate::Of(rank.local_model());
      if (rank.index() == 1) trained.evaluated = evaluated;
    });
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    trained.last = outcome.value_or(StepOutcome());
    return trained;
  };
  const Trained plain = train(1), deferred = train(4);
  EXPECT_GT(plain.last.loss, 0.1);
  EXPECT_NEAR(deferred.last.loss, plain.last.loss, kRounding);
  EXPECT_NEAR(deferred.evaluated, plain.evaluated, kSamples * kRounding);
  ExpectNear(deferred.estimate, plain.estimate);
  for (const auto& [name, gradient] : plain.last.gradients) {
    EXPECT_THAT(deferred.last.gradients.at(name), Pointwise(FloatNear(kRounding), gradient));
  }
}

// Images to classes, by pixels that are normalised without a momentum.
class NormOfImages : public Block {
 public:
  NormOfImages()
      : Block("norm"),
        norm_(AddChild<BatchNormLayer>("layer", 3, Activation::kNone, std::nullopt)) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override { return {norm_(pass, inputs[0])}; }

 private:
  BatchNormLayer& norm_;
};

class Classes : public Block {
 public:
  Classes() : Block("classes"), linear_(AddChild<LinearLayer>("linear", 32 * 32 * 3, 10)) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    const Shape flat = {inputs[0].shape()[0], 32 * 32 * 3};
    return {linear_(pass, Reshape(pass.tape, inputs[0], flat))};
  }

 private:
  LinearLayer& linear_;
};

// How many updates the mean is of goes through a checkpoint, from whatever rank has the layer.
TEST(DeferredBatchNormTest, ACumulativeAverageGoesOnAfterAResume) {
  const ModelFactory make_model = [](const Config&, const Dataset&) -> absl::StatusOr<Model> {
    Model model;
    model.blocks.push_back(std::make_unique<NormOfImages>());
    model.blocks.push_back(std::make_unique<Classes>());
    model.blocks[0]->cost.output_elements = 32 * 32 * 3;
    return model;
  };
  const std::string config = SmallResNetConfig() + "[checkpoint]\nevery = 1\n";
  const Assignments cut = {"cut.micro_batches=3"};
  const auto single = RunStrategy(SingleStrategy(), make_model, config, cut);
  RunStrategy(GPipeStrategy(), make_model, config, With(cut, {"mesh.pp=2", "train.steps=2"}));
  ResumeStrategy(SingleStrategy(), make_model, config, With(cut, {"train.steps=3"}));
  const auto last = ResumeStrategy(GPipeStrategy(), make_model, config, With(cut, {"mesh.pp=2"}));
  EXPECT_EQ(last[0].losses, std::vector<double>({single[0].losses.back()}));
  EXPECT_EQ(last[0].parameter_hash, single[0].parameter_hash);
  EXPECT_EQ(last[0].validation.loss, single[0].validation.loss);
}

}  // namespace
}  // namespace lockstep
