// Whole runs do not depend on the number of threads: losses, gradient norms, parameters and
// optimizer state of every preset, for 30 steps, are those of `single` on one thread.

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/safetensors.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/ddp/ddp.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/fsdp_pipe/fsdp_pipe.h"
#include "strategies/gpipe/gpipe.h"
#include "strategies/layerwise/layerwise.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"
#include "strategies/testing/split_workloads.h"  // GradientNorms
#include "strategies/tp/tp.h"
#include "strategies/zero1/zero1.h"
#include "strategies/zero2/zero2.h"

namespace lockstep {
namespace {

// Everything that a run leaves which the next step depends on, and what it reported.
struct Outcome {
  std::vector<double> losses, norms;
  double validation_loss = 0;
  std::map<std::string, std::vector<std::byte>> state;  // the checkpoint's tensors

  bool operator==(const Outcome&) const = default;
};

std::map<std::string, std::vector<std::byte>> CheckpointedState(const std::string& path) {
  std::map<std::string, std::vector<std::byte>> state;
  const auto reader = SafetensorsReader::Open(path);
  EXPECT_TRUE(reader.ok()) << reader.status();
  if (!reader.ok()) return state;
  for (const SafetensorsTensor& tensor : reader->tensors()) {
    std::vector<std::byte>& bytes = state[tensor.name];
    bytes.resize(tensor.bytes);
    EXPECT_TRUE(reader->Read(tensor, std::span(bytes)).ok()) << tensor.name;
  }
  return state;
}

constexpr int kSteps = 30;

Outcome Train(const StrategyDefinition& strategy, SmallModel model,
              const Assignments& assignments) {
  // Micro-batches of more rows than a leaf of a sum has, so that threads share the leaves, and
  // layers large enough that threads share their elements. An uneven batch.
  Assignments workload = {"cut.shards=2",
                          "cut.micro_batches=2",
                          absl::StrCat("train.steps=", kSteps),
                          absl::StrCat("schedule.total_steps=", kSteps),
                          "train.clip_norm=1.0",
                          "checkpoint.files=whole",
                          "checkpoint.keep=1"};
  if (model == SmallModel::kGpt) {
    workload = With(workload, {"batch.size=38", "data.context=32", "model.width=64"});
  } else {
    workload = With(workload, {"batch.size=14", "schedule.learning_rate=0.05"});
  }
  const std::vector<RankReport> reports =
      RunStrategy(strategy, MakeModel, SmallConfig(model), With(workload, assignments));
  return {reports[0].losses, GradientNorms(), reports[0].validation.loss,
          CheckpointedState(
              absl::StrCat(RunFolder(), "/checkpoints/step-000000", kSteps, ".safetensors"))};
}

// Compared piece by piece, so that a failure names what differs.
void ExpectEqual(const Outcome& run, const Outcome& reference) {
  ASSERT_EQ(reference.losses.size(), size_t{kSteps});
  ASSERT_EQ(reference.norms.size(), size_t{kSteps});
  ASSERT_GT(reference.state.size(), size_t{10});
  EXPECT_EQ(run.losses, reference.losses);
  EXPECT_EQ(run.norms, reference.norms);
  EXPECT_EQ(run.validation_loss, reference.validation_loss);
  ASSERT_EQ(run.state.size(), reference.state.size());
  for (const auto& [name, bytes] : reference.state) {
    const auto found = run.state.find(name);
    ASSERT_NE(found, run.state.end()) << name;
    EXPECT_TRUE(found->second == bytes) << name << " differs";
  }
}

std::string Threads(int threads) { return absl::StrCat("run.threads=", threads); }

class ThreadsTest : public testing::TestWithParam<std::tuple<SmallModel, std::string>> {};

TEST_P(ThreadsTest, SingleHasTheSameBits) {
  const auto& [model, dtype] = GetParam();
  const std::string precision = absl::StrCat("precision.compute=", dtype);
  const Outcome reference = Train(SingleStrategy(), model, {precision, Threads(1)});
  for (const int threads : {2, 3, 5}) {
    SCOPED_TRACE(absl::StrCat(threads, " threads"));
    ExpectEqual(Train(SingleStrategy(), model, {precision, Threads(threads)}), reference);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ThreadsTest,
                         testing::Combine(testing::Values(SmallModel::kGpt, SmallModel::kResNet,
                                                          SmallModel::kUNet),
                                          testing::Values("fp32", "bf16", "fp16")),
                         [](const auto& test) {
                           return absl::StrCat(Name(std::get<0>(test.param)), "_",
                                               std::get<1>(test.param));
                         });

struct Preset {
  std::string name;
  StrategyDefinition strategy;
  Assignments mesh;
};

class PresetsTest : public testing::TestWithParam<SmallModel> {};

// Ranks of one, two and three threads against one rank of one thread.
TEST_P(PresetsTest, HaveTheBitsOfSingleOnAnyNumberOfThreads) {
  const Outcome reference = Train(SingleStrategy(), GetParam(), {Threads(1)});
  const std::vector<Preset> presets = {
      {"ddp", DdpStrategy(), {"mesh.dp=2"}},
      {"zero1", Zero1Strategy(), {"mesh.dp=2"}},
      {"zero2", Zero2Strategy(), {"mesh.dp=2"}},
      {"fsdp", FsdpStrategy(), {"mesh.dp=2"}},
      {"layerwise", LayerwiseStrategy(), {"mesh.pp=2", "mesh.dp=2"}},
      {"gpipe", GPipeStrategy(), {"mesh.pp=2", "mesh.dp=2"}},
      {"fsdp_pipe", FsdpPipeStrategy(), {"mesh.pp=2", "mesh.dp=2"}}};
  for (const Preset& preset : presets) {
    for (const int threads : {1, 2, 3}) {
      SCOPED_TRACE(absl::StrCat(preset.name, ", ", threads, " threads a rank"));
      ExpectEqual(Train(preset.strategy, GetParam(), With(preset.mesh, {Threads(threads)})),
                  reference);
    }
  }
}

// Layers that ranks compute together still add up in another order than single's, but in one that
// threads do not change.
TEST_P(PresetsTest, TpHasTheSameBitsOnAnyNumberOfThreads) {
  const Assignments mesh = {"mesh.dp=2", "mesh.tp=2"};
  const Outcome reference = Train(TpStrategy(), GetParam(), With(mesh, {Threads(1)}));
  for (const int threads : {2, 3}) {
    SCOPED_TRACE(absl::StrCat(threads, " threads a rank"));
    ExpectEqual(Train(TpStrategy(), GetParam(), With(mesh, {Threads(threads)})), reference);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PresetsTest,
                         testing::Values(SmallModel::kGpt, SmallModel::kResNet, SmallModel::kUNet),
                         [](const auto& test) { return Name(test.param); });

}  // namespace
}  // namespace lockstep
