// Training that starts from a file, under every strategy.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "models/transformer/gpt2_file.h"
#include "strategies/ddp/ddp.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/layerwise/layerwise.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"
#include "strategies/tp/tp.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// SmallGptConfig's, whose text has 16 letters.
const TransformerOptions kSmallGpt = {
    .layers = 2, .heads = 2, .width = 32, .context = 16, .vocabulary = 16};

class InitialWeightsTest : public ::testing::Test {
 protected:
  InitialWeightsTest() : path_(::testing::TempDir() + "/initial_weights_test.safetensors") {
    Write(Gpt2File(kSmallGpt, "transformer.", /*spare_positions=*/3));
  }

  void Write(const SafetensorsByHand& file) const {
    std::ofstream(path_, std::ios::binary) << file.Bytes();
  }

  Assignments From(const std::string& path, const Assignments& more = {}) const {
    return With({absl::StrCat("model.init=", path)}, more);
  }

  static std::vector<RankReport> Train(const StrategyDefinition& strategy,
                                       const Assignments& assignments) {
    return RunStrategy(strategy, MakeModel, SmallGptConfig(), assignments);
  }

  std::string path_;
};

struct Ranks {
  StrategyDefinition strategy;
  Assignments mesh;
};

std::vector<Ranks> ExactOnTwoRanks() {
  return {{DdpStrategy(), {"mesh.dp=2"}},
          {FsdpStrategy(), {"mesh.dp=2"}},
          {LayerwiseStrategy(), {"mesh.pp=2", "cut.micro_batches=2"}}};
}

// As single would cut the batch.
Assignments AsOne(const Ranks& ranks) {
  return ranks.strategy.name == "layerwise" ? Assignments{"cut.micro_batches=2"}
                                            : Assignments{"cut.shards=2"};
}

TEST_F(InitialWeightsTest, EveryStrategyStartsFromTheSameBits) {
  for (const char* precision : {"fp32", "bf16"}) {
    const Assignments common = {absl::StrCat("precision.compute=", precision)};
    const auto drawn = Train(SingleStrategy(), common);
    for (const Ranks& ranks : ExactOnTwoRanks()) {
      const auto single = Train(SingleStrategy(), From(path_, With(common, AsOne(ranks))));
      const auto reports = Train(ranks.strategy, From(path_, With(common, ranks.mesh)));
      EXPECT_EQ(reports[0].losses, single[0].losses) << ranks.strategy.name;
      EXPECT_EQ(reports[1].parameter_hash, single[0].parameter_hash) << ranks.strategy.name;
      EXPECT_NE(single[0].losses[0], drawn[0].losses[0]);
    }
  }
}

TEST_F(InitialWeightsTest, TensorParallelRanksReadTheirSlices) {
  const auto single = Train(SingleStrategy(), From(path_));
  const auto reports = Train(TpStrategy(), From(path_, {"mesh.tp=2"}));
  for (size_t step = 0; step < single[0].losses.size(); ++step) {
    EXPECT_NEAR(reports[0].losses[step], single[0].losses[step], 1e-5 * single[0].losses[step]);
  }
}

// A run goes on from its own checkpoint, whatever it once started from, which may be gone.
TEST_F(InitialWeightsTest, ResumingDoesNotStartAgain) {
  const auto straight = Train(SingleStrategy(), From(path_));
  Train(SingleStrategy(), From(path_, {"train.steps=2"}));
  std::filesystem::remove(path_);
  const auto resumed = ResumeStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), From(path_));
  EXPECT_EQ(resumed[0].parameter_hash, straight[0].parameter_hash);
  // Its checkpoint does not care whether the configuration still names it.
  Write(Gpt2File(kSmallGpt));
  Train(SingleStrategy(), From(path_, {"train.steps=2"}));
  const auto without = ResumeStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), {});
  EXPECT_EQ(without[0].parameter_hash, straight[0].parameter_hash);
}

// The weights of a checkpoint are taken, and the optimizer begins anew; any cut serves.
TEST_F(InitialWeightsTest, ACheckpointServesToo) {
  Train(FsdpStrategy(), {"mesh.dp=2"});
  const std::string checkpoint = ::testing::TempDir() + "/initial_weights_test.checkpoint";
  std::filesystem::remove_all(checkpoint);
  std::filesystem::copy(RunFolder() + "/checkpoints/step-00000004", checkpoint);
  const auto single = Train(SingleStrategy(), From(checkpoint, {"cut.shards=2"}));
  const auto ddp = Train(DdpStrategy(), From(checkpoint, {"mesh.dp=2"}));
  EXPECT_EQ(ddp[0].losses, single[0].losses);
  EXPECT_NE(single[0].losses[0], Train(SingleStrategy(), {})[0].losses[0]);
}

TEST_F(InitialWeightsTest, OneMessageSaysAllThatDoesNotFit) {
  SafetensorsByHand file = Gpt2File(kSmallGpt);
  file.Remove("ln_f.bias");
  file.AddVector("h.1.ln_2.weight", 5, [](int64_t, int64_t) { return 0.0f; });
  file.AddVector("h.2.ln_2.weight", 5, [](int64_t, int64_t) { return 0.0f; });
  Write(file);
  const absl::Status status =
      FailStrategy(FsdpStrategy(), MakeModel, SmallGptConfig(), From(path_, {"mesh.dp=2"}));
  // Known before any rank starts.
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(testing::StartsWith("model.init: "),
            HasSubstr("/initial_weights_test.safetensors\" does not fit this model:\n"),
            HasSubstr("'ln_f.bias' is missing"), HasSubstr("'h.1.ln_2.weight' has the shape"),
            HasSubstr("'h.2.ln_2.weight' is no tensor"), Not(HasSubstr("rank"))));
  const auto problem = [](const std::string& config, const std::string& path) {
    return std::string(
        FailStrategy(SingleStrategy(), MakeModel, config, {"model.init=" + path}).message());
  };
  EXPECT_THAT(problem(SmallGptConfig(), "/none.safetensors"),
              HasSubstr("model.init: cannot read \"/none.safetensors\""));
  EXPECT_THAT(problem(SmallResNetConfig(), path_), HasSubstr("no checkpoint of a training run"));
}

}  // namespace
}  // namespace lockstep
