// Training in fp16 and bf16, under every strategy that has ranks of its own.

#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/autograd/operations.h"
#include "core/checkpoint/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/ddp/ddp.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/layerwise/layerwise.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<RankReport> Train(const StrategyDefinition& strategy, const std::string& config,
                              const Assignments& assignments) {
  return RunStrategy(strategy, MakeModel, config, assignments);
}

// The strategies that have data-parallel ranks, and what their meshes have beside these.
struct Ranked {
  StrategyDefinition strategy;
  Assignments stages;
};

std::vector<Ranked> StrategiesWithRanks() {
  return {{DdpStrategy(), {}}, {FsdpStrategy(), {}}, {LayerwiseStrategy(), {"mesh.pp=2"}}};
}

// --- the curve ----------------------------------------------------------------------------------

// 8 and 11 bits of significand: each rounding is off by up to 2^-9 and 2^-12 of a value, and a loss
// near 2.8 adds up many of them with random signs. A wrong gradient (a factor of two, a missing
// term) is off by 1e-2 and more after four steps at this learning rate.
TEST(PrecisionTest, CurvesStayWithinABandOfFp32) {
  for (const std::string& config : {SmallGptConfig(), SmallResNetConfig(), SmallUNetConfig()}) {
    const auto fp32 = Train(SingleStrategy(), config, {});
    for (const auto& [compute, band] : {std::pair("fp16", 2e-3), std::pair("bf16", 1e-2)}) {
      for (const char* reduce : {compute, "fp32"}) {
        const auto less = Train(SingleStrategy(), config,
                                {absl::StrCat("precision.compute=", compute),
                                 absl::StrCat("precision.reduce=", reduce)});
        ASSERT_EQ(less[0].losses.size(), fp32[0].losses.size());
        EXPECT_NE(less[0].losses, fp32[0].losses) << "nothing was rounded";
        for (size_t step = 0; step < fp32[0].losses.size(); ++step) {
          EXPECT_NEAR(less[0].losses[step] / fp32[0].losses[step], 1, band)
              << compute << ", reduced in " << reduce << ", step " << step;
        }
      }
    }
  }
}

// More than contract 3 asks for: single sums the shards as ranks do, and rounds once.
class SameBitsTest : public ::testing::TestWithParam<std::tuple<const char*, const char*, int>> {};

TEST_P(SameBitsTest, AsSingle) {
  const auto [compute, reduce, shards] = GetParam();
  const Assignments precision = {absl::StrCat("precision.compute=", compute),
                                 absl::StrCat("precision.reduce=", reduce), "cut.micro_batches=2",
                                 "batch.size=24"};
  for (const std::string& config : {SmallGptConfig(), SmallResNetConfig(), SmallUNetConfig()}) {
    const auto single =
        Train(SingleStrategy(), config, With(precision, {absl::StrCat("cut.shards=", shards)}));
    for (const auto& [strategy, stages] : StrategiesWithRanks()) {
      const auto ranks = Train(strategy, config,
                               With(With(precision, stages), {absl::StrCat("mesh.dp=", shards)}));
      EXPECT_EQ(ranks[0].losses, single[0].losses) << strategy.name;
      EXPECT_EQ(ranks[0].parameter_hash, single[0].parameter_hash) << strategy.name;
      EXPECT_EQ(ranks[0].validation.loss, single[0].validation.loss) << strategy.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Precisions, SameBitsTest,
    ::testing::Values(std::tuple("bf16", "bf16", 3), std::tuple("bf16", "fp32", 2),
                      std::tuple("fp16", "fp16", 2), std::tuple("fp32", "bf16", 3)),
    [](const auto& parameters) {
      return absl::StrCat(std::get<0>(parameters.param), "_", std::get<1>(parameters.param), "_",
                          std::get<2>(parameters.param));
    });

// Reduce-scattered among neighbours, then summed over replicas: each sum is rounded.
TEST(PrecisionTest, ReplicasAndNeighboursHaveTheBitsOfSingleToo) {
  for (const char* compute : {"bf16", "fp16"}) {
    const Assignments precision = {absl::StrCat("precision.compute=", compute)};
    const auto single =
        Train(SingleStrategy(), SmallGptConfig(), With(precision, {"cut.shards=4"}));
    const auto replicas =
        Train(FsdpStrategy(), SmallGptConfig(), With(precision, {"mesh.replicas=2", "mesh.dp=2"}));
    EXPECT_EQ(replicas[0].losses, single[0].losses) << compute;
    EXPECT_EQ(replicas[0].parameter_hash, single[0].parameter_hash) << compute;
    const auto neighbours = Train(FsdpStrategy(), SmallGptConfig(),
                                  With(precision, {"mesh.dp=4", "data_parallel.reshard=2"}));
    EXPECT_EQ(neighbours[0].losses, single[0].losses) << compute;
    EXPECT_EQ(neighbours[0].parameter_hash, single[0].parameter_hash) << compute;
  }
}

// --- what is sent and held ----------------------------------------------------------------------

TEST(PrecisionTest, GradientsTravelInTheReduceDtype) {
  for (const StrategyDefinition& strategy : {DdpStrategy(), FsdpStrategy()}) {
    for (const char* reduce : {"fp32", "bf16"}) {
      const auto reports =
          Train(strategy, SmallGptConfig(),
                {"mesh.dp=2", "precision.compute=bf16", absl::StrCat("precision.reduce=", reduce)});
      for (const RankReport& report : reports) {
        for (const CostPrediction::Traffic& predicted : report.prediction.traffic) {
          EXPECT_DOUBLE_EQ(report.traffic.Of(predicted.operation, predicted.label).wire_bytes / 4,
                           predicted.wire_bytes)
              << strategy.name << " " << predicted.label;
        }
        EXPECT_EQ(report.traffic.by_kind.size(), report.prediction.traffic.size());
      }
    }
  }
  const auto traffic = [](const char* reduce) {
    return Train(DdpStrategy(), SmallGptConfig(),
                 {"mesh.dp=2", "precision.compute=bf16",
                  absl::StrCat("precision.reduce=", reduce)})[0]
        .traffic.Of(Operation::kAllReduce, "gradients")
        .wire_bytes;
  };
  EXPECT_DOUBLE_EQ(traffic("fp32"), 2 * traffic("bf16"));
}

TEST(PrecisionTest, MemoryIsTheSeedsList) {
  for (const StrategyDefinition& strategy : {SingleStrategy(), DdpStrategy(), FsdpStrategy()}) {
    Assignments assignments = {"precision.compute=fp16"};
    if (strategy.name != "single") assignments.push_back("mesh.dp=2");
    for (const RankReport& report : Train(strategy, SmallGptConfig(), assignments)) {
      std::vector<std::pair<std::string, double>> parts;
      for (const auto& part : report.prediction.per_parameter) {
        parts.emplace_back(part.what, part.bytes);
      }
      EXPECT_EQ(parts, (std::vector<std::pair<std::string, double>>{{"parameter", 2},
                                                                    {"gradient", 2},
                                                                    {"master weight", 4},
                                                                    {"first moment", 4},
                                                                    {"second moment", 4}}))
          << strategy.name;
      for (const CostPrediction::Memory& predicted : report.prediction.memory) {
        const auto measured = static_cast<double>(report.memory.peak(predicted.memory_class));
        EXPECT_NEAR(measured / static_cast<double>(predicted.bytes), 1, 0.05)
            << strategy.name << " " << Name(predicted.memory_class);
      }
    }
  }
}

// --- loss scaling -------------------------------------------------------------------------------

// The first moment of a parameter after one step: a tenth of its gradient, clipped or not.
std::vector<float> FirstMoment(const std::string& parameter, const Assignments& assignments) {
  Train(SingleStrategy(), SmallGptConfig(), assignments);
  const auto reader =
      SafetensorsReader::Open(RunFolder() + "/checkpoints/step-00000001.safetensors");
  EXPECT_TRUE(reader.ok()) << reader.status();
  if (!reader.ok()) return {};
  const SafetensorsTensor* tensor = reader->Find("optimizer.first_moment." + parameter);
  std::vector<float> values(tensor->bytes / sizeof(float));
  EXPECT_TRUE(reader->Read(*tensor, std::as_writable_bytes(std::span(values))).ok());
  return values;
}

// How far a vector is from another in direction: 0 parallel, 1 at right angles, or nothing at all.
double Turned(const std::vector<float>& a, const std::vector<float>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return aa * bb > 0 ? 1 - ab / std::sqrt(aa * bb) : 1;
}

// The loss is a mean over 262,144 tokens: one token's part of a gradient deep in the model is below
// 2^-24, the smallest that fp16 knows. //experiments/gpt_fp16 shows what becomes of the loss.
TEST(PrecisionTest, GradientsThatVanishInFp16SurviveWhereTheLossIsScaled) {
  const Assignments large = {"batch.size=16384", "cut.micro_batches=8", "train.steps=1",
                             "model.width=16",   "model.layers=1",      "model.dropout=0.0"};
  for (const char* parameter : {"blocks.0.attention.qkv.weight", "blocks.0.network.up.weight"}) {
    const std::vector<float> fp32 = FirstMoment(parameter, large);
    const std::vector<float> scaled =
        FirstMoment(parameter, With(large, {"precision.compute=fp16"}));
    const std::vector<float> unscaled = FirstMoment(
        parameter, With(large, {"precision.compute=fp16", "precision.loss_scaling=none"}));
    EXPECT_LT(Turned(scaled, fp32), 1e-3) << parameter;
    EXPECT_GT(Turned(unscaled, fp32), 0.1) << parameter;
  }
}

// A block that passes its input on, times infinity in one micro-batch of one step: of one rank.
class Overflow : public Block {
 public:
  Overflow(int64_t step, int64_t micro_batch)
      : Block("overflow"), step_(step), micro_batch_(micro_batch) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    if (!pass.training() || pass.step != step_ || pass.micro_batch != micro_batch_) return inputs;
    Kernels& k = pass.kernels();
    const Tensor y = k.EmptyLike(inputs[0].value);
    k.Copy(inputs[0].value, y);
    Variable out = pass.tape.Result(y, true);
    pass.tape.Record(out, [&k, x = inputs[0].gradient](Tensor dy) {
      k.Scale(dy, std::numeric_limits<float>::infinity(), dy);
      x->Add(k, dy);
    });
    return {out};
  }

 private:
  int64_t step_, micro_batch_;
};

ModelFactory OverflowsAt(int64_t step, int64_t micro_batch) {
  return [=](const Config& config, const Dataset& dataset) -> absl::StatusOr<Model> {
    absl::StatusOr<Model> model = MakeModel(config, dataset);
    if (model.ok()) model->blocks.push_back(std::make_unique<Overflow>(step, micro_batch));
    return model;
  };
}

TEST(PrecisionTest, AnOverflowOnOneRankSkipsTheStepOnAll) {
  const Assignments fp16 = {"precision.compute=fp16", "precision.initial_scale=256"};
  for (const std::string& config : {SmallGptConfig(), SmallResNetConfig()}) {
    // The third of four shards overflows; single walks them all.
    const auto single =
        RunStrategy(SingleStrategy(), OverflowsAt(2, 2), config, With(fp16, {"cut.shards=4"}));
    EXPECT_EQ(single[0].skipped_steps, 1);
    EXPECT_EQ(single[0].loss_scale, 128) << "of the last step";
    for (const auto& [strategy, stages] : StrategiesWithRanks()) {
      const auto ranks =
          RunStrategy(strategy, OverflowsAt(2, 2), config, With(With(fp16, stages), {"mesh.dp=4"}));
      for (const RankReport& rank : ranks) {
        EXPECT_EQ(rank.skipped_steps, 1) << strategy.name;
        EXPECT_EQ(rank.losses, single[0].losses) << strategy.name;
        EXPECT_EQ(rank.parameter_hash, single[0].parameter_hash) << strategy.name;
      }
    }
  }
}

TEST(PrecisionTest, ASkippedLastStepLeavesEverythingAsItWas) {
  for (const auto& [config, more] :
       {std::pair(SmallGptConfig(), Assignments{}), std::pair(SmallResNetConfig(), Assignments{}),
        std::pair(SmallResNetConfig(), Assignments{"train.deferred_batch_norm=false"})}) {
    const Assignments fp16 =
        With({"precision.compute=fp16", "precision.initial_scale=256", "mesh.dp=2"}, more);
    for (const auto& [strategy, stages] : StrategiesWithRanks()) {
      const Assignments mesh = With(fp16, stages);
      const auto skipped =
          RunStrategy(strategy, OverflowsAt(2, 1), config, With(mesh, {"train.steps=3"}));
      const auto shorter =
          RunStrategy(strategy, OverflowsAt(2, 1), config, With(mesh, {"train.steps=2"}));
      EXPECT_EQ(skipped[0].skipped_steps, 1);
      // Parameters, and the running statistics of batch normalisation.
      EXPECT_EQ(skipped[0].parameter_hash, shorter[0].parameter_hash) << strategy.name;
    }
  }
}

TEST(PrecisionTest, ScaleAndCounterGoOnAfterAResume) {
  const std::string config = SmallGptConfig();
  const Assignments fp16 = {"precision.compute=fp16", "precision.initial_scale=256",
                            "precision.interval=2", "train.steps=6"};
  const auto resume = [&](const StrategyDefinition& strategy, const Assignments& more) {
    return ResumeStrategy(strategy, OverflowsAt(1, 0), config, With(fp16, more));
  };
  const auto whole =
      RunStrategy(SingleStrategy(), OverflowsAt(1, 0), config, With(fp16, {"cut.shards=2"}));
  // Skipped at step 1; 128 for two steps, 256 for two more.
  EXPECT_EQ(whole[0].skipped_steps, 1);
  EXPECT_EQ(whole[0].loss_scale, 512 / 2);
  RunStrategy(DdpStrategy(), OverflowsAt(1, 0), config, With(fp16, {"mesh.dp=2", "train.steps=3"}));
  resume(FsdpStrategy(), {"mesh.dp=2", "train.steps=5"});
  const auto last = resume(SingleStrategy(), {"cut.shards=2"});
  EXPECT_EQ(last[0].loss_scale, whole[0].loss_scale);
  EXPECT_EQ(last[0].losses, std::vector<double>({whole[0].losses.back()}));
  EXPECT_EQ(last[0].parameter_hash, whole[0].parameter_hash);
}

TEST(PrecisionTest, AScaleThatFallsBelowOneEndsTheRun) {
  // fp16 cannot hold this input's gradients at any scale.
  const absl::Status status =
      FailStrategy(DdpStrategy(), MakeModel, SmallGptConfig(),
                   {"mesh.dp=2", "precision.compute=fp16", "schedule.learning_rate=1e30",
                    "train.steps=40", "train.on_nan=continue"});
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("below 1"), HasSubstr("learning_rate"), HasSubstr("bf16")));
}

// Weights that are too large for fp16 make the second loss infinite or NaN at any scale. The step
// is skipped, which leaves parameters, scale and statistics for the search of the first tensor.
TEST(PrecisionTest, ALossThatIsNotFiniteStopsARunWhoseLossIsScaled) {
  for (const Assignments& scaling :
       {Assignments{"precision.loss_scaling=static", "precision.initial_scale=256"},
        Assignments{"precision.loss_scaling=dynamic", "precision.initial_scale=256"},
        Assignments{"precision.loss_scaling=dynamic", "precision.initial_scale=1"}}) {
    const Assignments diverges =
        With({"precision.compute=fp16", "schedule.learning_rate=1e30", "train.steps=4"}, scaling);
    const auto expect_stop = [&](const StrategyDefinition& strategy, const Assignments& mesh) {
      const absl::Status status =
          FailStrategy(strategy, MakeModel, SmallGptConfig(), With(diverges, mesh));
      EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
      EXPECT_THAT(
          std::string(status.message()),
          AllOf(HasSubstr("step 2: the loss is "), HasSubstr("bf16"),
                HasSubstr("--set probe.first_step=1 "),
                HasSubstr("The first tensor that is not finite is the output of embedding")))
          << strategy.name;
    };
    expect_stop(SingleStrategy(), {"mesh.dp=1"});
    expect_stop(DdpStrategy(), {"mesh.dp=2"});
    expect_stop(FsdpStrategy(), {"mesh.dp=2"});
  }
}

TEST(PrecisionTest, WrongSettingsAreRefused) {
  const auto problem = [](const std::string& assignment) {
    return std::string(
        FailStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), {assignment}).message());
  };
  EXPECT_THAT(problem("precision.compute=fp17"), AllOf(HasSubstr("fp17"), HasSubstr("fp16")));
  EXPECT_THAT(problem("precision.reduce=double"), HasSubstr("precision.reduce"));
  EXPECT_THAT(problem("precision.scale=2"), HasSubstr("precision.scale"));
  // Without loss scaling its settings mean nothing.
  EXPECT_THAT(problem("precision.interval=10"), HasSubstr("precision.interval"));
}

}  // namespace
}  // namespace lockstep
