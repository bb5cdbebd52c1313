// Probes of runs on meshes, put together to whole tensors: those of `single`, to the bit.

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/probe/probed_run.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/engine/preset.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

const Assignments kProbed = {"probe.steps=2",       "train.steps=2",  "cut.shards=2",
                             "cut.micro_batches=2", "cut.features=2", "batch.size=8"};
const Assignments kTokens = {"cut.tokens=4"};

StrategyDefinition Engine() { return EnginePreset("engine", {}); }

ProbedRun RunProbed(const StrategyDefinition& strategy, SmallModel model,
                    const Assignments& assignments) {
  RunStrategy(strategy, MakeModel, SmallConfig(model), With(kProbed, assignments));
  absl::StatusOr<ProbedRun> run = ReadProbedRun(RunFolder());
  EXPECT_TRUE(run.ok()) << run.status();
  return run.ok() ? *std::move(run) : ProbedRun();
}

// Every tensor of `mesh` is complete, has equal copies, and is that of `single`, which has no other
// tensors but for what ranks have yet to sum.
void ExpectTensorsOfSingle(const ProbedRun& mesh, const ProbedRun& single) {
  int64_t parts = 0;
  for (const ProbedWhole& tensor : mesh.tensors) {
    SCOPED_TRACE(tensor.key.ToString());
    EXPECT_EQ(tensor.conflict, "");
    EXPECT_TRUE(tensor.is_complete()) << tensor.elements;
    if (!tensor.key.part.empty()) {
      ++parts;
      continue;
    }
    const ProbedWhole* whole = single.Find(tensor.key);
    ASSERT_NE(whole, nullptr);
    EXPECT_EQ(tensor.shape, whole->shape);
    EXPECT_EQ(tensor.digest.hash, whole->digest.hash);
  }
  int64_t missing = 0;
  for (const ProbedWhole& tensor : single.tensors) {
    if (mesh.Find(tensor.key) == nullptr) {
      ++missing;
      EXPECT_EQ(tensor.key.kind, ProbeKind::kShardGradient) << tensor.key.ToString();
    }
  }
  EXPECT_TRUE(parts > 0 || missing == 0) << missing;
}

struct Case {
  std::string name;
  SmallModel model;
  Assignments workload;
  Assignments mesh;
};
void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }

class ProbesTest : public testing::TestWithParam<Case> {};

TEST_P(ProbesTest, AssembleToTheTensorsOfSingle) {
  const Case& test = GetParam();
  const ProbedRun single = RunProbed(SingleStrategy(), test.model, test.workload);
  ASSERT_GT(single.tensors.size(), 100u);
  ExpectTensorsOfSingle(RunProbed(Engine(), test.model, With(test.workload, test.mesh)), single);
}

const Assignments kAdapters = {R"(lora.layers=["*"])", "lora.rank=2", "lora.dropout=0.1"};

INSTANTIATE_TEST_SUITE_P(
    Meshes, ProbesTest,
    ::testing::Values(
        Case{"FourAxes",
             SmallModel::kGpt,
             kTokens,
             {"mesh.pp=2", "mesh.dp=1", "mesh.cp=2", "mesh.tp=2", "pipeline.schedule=1f1b"}},
        Case{"FourAxesOf16",
             SmallModel::kLlama,
             kTokens,
             {"mesh.pp=2", "mesh.dp=2", "mesh.cp=2", "mesh.tp=2", "pipeline.schedule=zb_h1",
              "tensor_parallel.sequence_parallel=true"}},
        Case{"Ddp", SmallModel::kResNet, {"model.width=12"}, {"mesh.dp=2"}},
        Case{"Zero1",
             SmallModel::kGpt,
             {},
             {"mesh.dp=2", "mesh.tp=2", "data_parallel.shard=optimizer"}},
        Case{"Fsdp",
             SmallModel::kGpt,
             {},
             {"mesh.dp=2", "data_parallel.shard=parameters", "recompute.granularity=full"}},
        Case{"GPipe",
             SmallModel::kUNet,
             {"model.width=12"},
             {"mesh.pp=2", "pipeline.schedule=gpipe", "recompute.micro_batches=always"}},
        Case{"Lora", SmallModel::kGpt, kAdapters, {"mesh.dp=2", "mesh.tp=2"}},
        Case{"Bf16", SmallModel::kGpt, {"precision.compute=bf16"}, {"mesh.dp=2", "mesh.tp=2"}}),
    [](const auto& test) { return test.param.name; });

TEST(ProbeSettingsTest, ValuesPutTogetherHaveTheHashOfTheWhole) {
  const ProbedRun single = RunProbed(SingleStrategy(), SmallModel::kGpt, {"probe.values=true"});
  const ProbedRun mesh =
      RunProbed(Engine(), SmallModel::kGpt, {"probe.values=true", "mesh.dp=2", "mesh.tp=2"});
  const ProbeKey key = {.step = 1, .number = 3, .place = "blocks.1.attention.qkv"};
  const ProbedWhole* tensor = mesh.Find(key);
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->shards.size(), 2u);
  const absl::StatusOr<std::string> values = mesh.Values(*tensor);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(DigestOf(tensor->dtype, reinterpret_cast<const uint8_t*>(values->data()),
                     WholeSlice(tensor->shape))
                .hash,
            single.Find(key)->digest.hash);
}

TEST(ProbeSettingsTest, RecordsTheStepsAndPlacesThatAreAskedFor) {
  const ProbedRun run =
      RunProbed(SingleStrategy(), SmallModel::kGpt,
                {"train.steps=4", "probe.first_step=1", R"(probe.places=["blocks.1.attention"])"});
  for (const ProbedWhole& tensor : run.tensors) {
    EXPECT_TRUE(tensor.key.step == 1 || tensor.key.step == 2) << tensor.key.ToString();
    if (tensor.key.kind == ProbeKind::kNumber || tensor.key.place.starts_with("batch.") ||
        tensor.key.place == "losses") {
      continue;
    }
    EXPECT_THAT(tensor.key.place, HasSubstr("blocks.1.attention"));
  }
  EXPECT_NE(run.Find({.step = 2, .number = 0, .place = "blocks.1.attention.core"}), nullptr);
}

TEST(ProbeSettingsTest, PlacesThatNameNothingAreRefused) {
  const absl::Status error = FailStrategy(SingleStrategy(), MakeModel, SmallGptConfig(),
                                          With(kProbed, {R"(probe.places=["block.*"])"}));
  EXPECT_THAT(error.message(),
              HasSubstr("probe.places: 'block.*' names no block, layer or parameter of the model"));
}

TEST(ProbeSettingsTest, ProbesChangeNoBitAndWithoutThemThereIsNoFile) {
  const auto without =
      RunStrategy(Engine(), MakeModel, SmallGptConfig(), With(kProbed, {"probe.steps=0"}));
  EXPECT_FALSE(PathExists(RunFolder() + "/probes"));
  ExpectSameBits(RunStrategy(Engine(), MakeModel, SmallGptConfig(), kProbed), without);
}

// The guard watches the step too, and repeats it behind the probes' back.
TEST(ProbeSettingsTest, ProbesOfAGuardedStepAreThoseOfAnother) {
  const Assignments mesh = {"mesh.dp=2"};
  const ProbedRun plain = RunProbed(Engine(), SmallModel::kGpt, mesh);
  const ProbedRun guarded = RunProbed(Engine(), SmallModel::kGpt, With(mesh, {"guard.every=1"}));
  EXPECT_GT(plain.tensors.size(), 100u);
  EXPECT_EQ(guarded.tensors.size(), plain.tensors.size());
  for (const ProbedWhole& tensor : plain.tensors) {
    const ProbedWhole* same = guarded.Find(tensor.key);
    ASSERT_NE(same, nullptr) << tensor.key.ToString();
    EXPECT_EQ(same->digest.hash, tensor.digest.hash) << tensor.key.ToString();
  }
}

}  // namespace
}  // namespace lockstep
