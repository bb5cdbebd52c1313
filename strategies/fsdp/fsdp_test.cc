#include "strategies/fsdp/fsdp.h"

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/checkpoint/safetensors.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/ddp/ddp.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

// Contract 3: the very bits of single, losses and final parameters alike.
void ExpectSameBits(const std::vector<RankReport>& fsdp, const std::vector<RankReport>& single) {
  for (const RankReport& rank : fsdp) {
    EXPECT_EQ(rank.losses, single[0].losses);
    EXPECT_EQ(rank.parameter_hash, single[0].parameter_hash);
    EXPECT_EQ(rank.validation.loss, single[0].validation.loss);
    EXPECT_EQ(rank.validation.accuracy, single[0].validation.accuracy);
  }
}

struct Cut {
  bool gpt;
  int shards, micro_batches;
};

void CheckBits(const Cut& cut, const std::vector<std::string>& options) {
  const std::string config = cut.gpt ? SmallGptConfig() : SmallResNetConfig();
  const std::vector<std::string> batch = {"batch.size=24",
                                          absl::StrCat("batch.micro_batches=", cut.micro_batches)};
  std::vector<std::string> one = batch, many = batch;
  one.push_back(absl::StrCat("batch.shards=", cut.shards));
  many.push_back(absl::StrCat("mesh.dp=", cut.shards));
  many.insert(many.end(), options.begin(), options.end());
  const auto single = RunStrategy(SingleStrategy(), MakeModel, config, one);
  const auto fsdp = RunStrategy(FsdpStrategy(), MakeModel, config, many);
  ASSERT_EQ(fsdp.size(), static_cast<size_t>(cut.shards));
  ASSERT_EQ(single[0].losses.size(), 4u);
  ExpectSameBits(fsdp, single);
}

class FsdpEqualsSingleTest : public ::testing::TestWithParam<std::tuple<bool, int, int>> {};

TEST_P(FsdpEqualsSingleTest, ToTheBit) {
  const auto [gpt, shards, micro_batches] = GetParam();
  CheckBits({gpt, shards, micro_batches}, {});
}

TEST(FsdpTest, ToTheBitWhereNothingIsReshardedAfterForward) {
  for (const bool gpt : {true, false}) {
    for (const int micro_batches : {1, 2}) {
      CheckBits({gpt, 2, micro_batches}, {"fsdp.reshard_after_forward=false"});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, FsdpEqualsSingleTest,
                         ::testing::Combine(::testing::Bool(), ::testing::Values(1, 2, 3, 4),
                                            ::testing::Values(1, 2)),
                         [](const auto& parameters) {
                           return absl::StrCat(std::get<0>(parameters.param) ? "Gpt" : "ResNet",
                                               "Shards", std::get<1>(parameters.param),
                                               "MicroBatches", std::get<2>(parameters.param));
                         });

TEST(FsdpTest, BytesOnTheWireEqualTheTheory) {
  // 16 tokens, width 32, 2 layers, context 16: embeddings, blocks, last norm. All units divide
  // by two without a rest.
  const double parameters = 16 * 32 + 16 * 32 + 2 * (12 * 32 * 32 + 13 * 32) + 2 * 32;
  for (const bool reshard : {true, false}) {
    const auto reports = RunStrategy(
        FsdpStrategy(), MakeModel, SmallGptConfig(),
        {"mesh.dp=2", absl::StrCat("fsdp.reshard_after_forward=", reshard ? "true" : "false")});
    for (const RankReport& report : reports) {
      const double sent = report.traffic.Of(Operation::kAllGather, "parameters").wire_bytes +
                          report.traffic.Of(Operation::kReduceScatter, "gradients").wire_bytes;
      // Validation gathers once more, after the last step: it is no part of the steps.
      EXPECT_DOUBLE_EQ(sent / 4, (reshard ? 3 : 2) * parameters * 4 / 2);
    }
  }
}

TEST(FsdpTest, TrafficIsWhatThePredictionSays) {
  for (const char* micro_batches : {"batch.micro_batches=1", "batch.micro_batches=3"}) {
    for (const std::string& config : {SmallGptConfig(), SmallResNetConfig()}) {
      const auto reports =
          RunStrategy(FsdpStrategy(), MakeModel, config, {"mesh.dp=4", micro_batches});
      for (const RankReport& report : reports) {
        for (const CostPrediction::Traffic& predicted : report.prediction.traffic) {
          EXPECT_DOUBLE_EQ(report.traffic.Of(predicted.operation, predicted.label).wire_bytes / 4,
                           predicted.wire_bytes)
              << predicted.label;
        }
        EXPECT_EQ(report.traffic.by_kind.size(), report.prediction.traffic.size());
      }
    }
  }
}

TEST(FsdpTest, MemoryIsWhatThePredictionSays) {
  for (const char* micro_batches : {"batch.micro_batches=1", "batch.micro_batches=3"}) {
    for (const std::string& config : {SmallGptConfig(), SmallResNetConfig()}) {
      const auto reports =
          RunStrategy(FsdpStrategy(), MakeModel, config, {"mesh.dp=2", micro_batches});
      for (const RankReport& report : reports) {
        for (const CostPrediction::Memory& predicted : report.prediction.memory) {
          const auto measured = static_cast<double>(report.memory.peak(predicted.memory_class));
          EXPECT_LE(measured, 1.05 * predicted.bytes) << Name(predicted.memory_class);
          EXPECT_GE(measured, 0.80 * predicted.bytes) << Name(predicted.memory_class);
        }
      }
    }
  }
}

// What does not fit one rank's memory trains when it is cut.
TEST(FsdpTest, TrainsWhatDoesNotFitARank) {
  // 1.2 million parameters: 19 MB of state.
  const std::vector<std::string> assignments = {"mesh.dp=4", "model.width=128", "model.layers=6",
                                                "memory.limit=14000000"};
  const absl::Status ddp = FailStrategy(DdpStrategy(), MakeModel, SmallGptConfig(), assignments);
  EXPECT_TRUE(absl::IsResourceExhausted(ddp)) << ddp;
  const auto fsdp = RunStrategy(FsdpStrategy(), MakeModel, SmallGptConfig(), assignments);
  EXPECT_EQ(fsdp.size(), 4u);
}

// All tensors of a safetensors file: what they are, and their bytes.
std::map<std::string, std::string> TensorsOf(const std::string& path) {
  std::map<std::string, std::string> tensors;
  const auto reader = SafetensorsReader::Open(path);
  EXPECT_TRUE(reader.ok()) << reader.status();
  if (!reader.ok()) return tensors;
  for (const SafetensorsTensor& tensor : reader->tensors()) {
    std::string bytes(static_cast<size_t>(tensor.bytes), 0);
    EXPECT_TRUE(reader->Read(tensor, std::as_writable_bytes(std::span(bytes))).ok());
    tensors[tensor.name] = absl::StrCat(tensor.dtype, absl::StrJoin(tensor.shape, "x"), bytes);
  }
  return tensors;
}

// Saved under one strategy and number of ranks, resumed under another: the same losses and bits.
TEST(FsdpTest, AnyStrategyAndMeshResumesAnyOther) {
  const std::string config = SmallGptConfig() + "[checkpoint]\nevery = 1\n";
  const std::vector<std::string> all = {"schedule.kind=cosine", "schedule.total_steps=4",
                                        "batch.micro_batches=1"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> assignments = all;
    assignments.insert(assignments.end(), more.begin(), more.end());
    return assignments;
  };
  const auto checkpoint = [](const std::string& name) {
    return RunFolder() + "/checkpoints/" + name;
  };
  const auto exists = [&](const std::string& name) {
    return std::filesystem::exists(checkpoint(name));
  };
  // The order of sums is that of 4 shards throughout, where micro-batches cannot differ.
  const auto whole = RunStrategy(SingleStrategy(), MakeModel, config, with({"batch.shards=4"}));
  const auto tensors = TensorsOf(checkpoint("step-00000004.safetensors"));
  RunStrategy(DdpStrategy(), MakeModel, config, with({"mesh.dp=4", "train.steps=1"}));
  const auto three =
      ResumeStrategy(FsdpStrategy(), MakeModel, config, with({"mesh.dp=4", "train.steps=3"}));
  EXPECT_TRUE(exists("step-00000003/shard-00004-of-00004.safetensors"));

  // Resumed with no step to go, each loads what the one before has saved, and saves it its own way.
  struct Hop {
    StrategyDefinition strategy;
    std::string ranks;
    std::string file;
  };
  for (const Hop& hop :
       {Hop{FsdpStrategy(), "mesh.dp=3", "step-00000003/shard-00003-of-00003.safetensors"},
        Hop{DdpStrategy(), "mesh.dp=2", "step-00000003.safetensors"},
        Hop{FsdpStrategy(), "mesh.dp=2", "step-00000003/shard-00002-of-00002.safetensors"},
        Hop{SingleStrategy(), "batch.shards=4", "step-00000003.safetensors"}}) {
    const auto resumed =
        ResumeStrategy(hop.strategy, MakeModel, config, with({hop.ranks, "train.steps=3"}));
    EXPECT_EQ(resumed[0].parameter_hash, three[0].parameter_hash) << hop.file;
    EXPECT_TRUE(exists(hop.file)) << hop.file;
    EXPECT_NE(exists("step-00000003"), exists("step-00000003.safetensors"));
  }
  // And back. The last step is right if the optimizer's state has come through as well.
  const auto back = ResumeStrategy(FsdpStrategy(), MakeModel, config,
                                   with({"mesh.dp=4", "checkpoint.files='whole'"}));
  EXPECT_EQ(back[0].losses,
            std::vector<double>(whole[0].losses.begin() + 3, whole[0].losses.end()));
  EXPECT_EQ(back[0].parameter_hash, whole[0].parameter_hash);
  EXPECT_TRUE(TensorsOf(checkpoint("step-00000004.safetensors")) == tensors);

  // Another number of ranks goes on all the same: what is summed in another order stays close.
  RunStrategy(FsdpStrategy(), MakeModel, config, with({"mesh.dp=3", "train.steps=2"}));
  const auto two = ResumeStrategy(FsdpStrategy(), MakeModel, config, with({"mesh.dp=2"}));
  ASSERT_EQ(two[0].losses.size(), 2u);
  EXPECT_NEAR(two[0].losses[1], whole[0].losses[3], 0.1);
}

TEST(FsdpTest, UnitsAreGatheredTwiceAStep) {
  const auto reports = RunStrategy(FsdpStrategy(), MakeModel, SmallGptConfig(), {"mesh.dp=2"});
  // Four units (embeddings, two blocks, the last norm), two gathers each, four steps, and the
  // embeddings' are gathered no oftener for being the head too.
  EXPECT_EQ(reports[0].traffic.Of(Operation::kAllGather, "parameters").calls, 4 * 4 * 2);
  EXPECT_EQ(reports[0].traffic.Of(Operation::kReduceScatter, "gradients").calls, 4 * 4);
}

TEST(FsdpTest, RefusesWhatItDoesNotKnow) {
  const absl::Status option =
      FailStrategy(FsdpStrategy(), MakeModel, SmallGptConfig(), {"mesh.dp=2", "fsdp.reshard=true"});
  EXPECT_NE(std::string(option.message()).find("fsdp.reshard"), std::string::npos) << option;
}

}  // namespace
}  // namespace lockstep
