// The reference solutions of LLM-Training-Puzzles under its cost model, and Lockstep's own steps of
// the puzzles' strategies, which take the same times.

#include "foresight/llm_training_puzzles.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/file.h"
#include "core/nn/layers.h"
#include "foresight/cluster.h"
#include "foresight/dialect.h"
#include "foresight/network_time.h"
#include "foresight/recorded_run.h"
#include "foresight/step_time.h"
#include "gtest/gtest.h"
#include "strategies/engine/preset.h"

namespace lockstep {
namespace {

class PuzzlesTest : public testing::Test {
 protected:
  void SetUp() override {
    auto cluster = ReadCluster("foresight/clusters/llm_training_puzzles.toml");
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    auto dialect = Dialect::Read("foresight/dialects/llm_training_puzzles.toml");
    ASSERT_TRUE(dialect.ok()) << dialect.status();
    dialect_ = *std::move(dialect);
  }

  double Seconds(std::shared_ptr<const RecordedRun> run) {
    const auto step = StepTime::Create(std::move(run), dialect_, cluster_);
    EXPECT_TRUE(step.ok()) << step.status();
    const auto estimate = step->Estimate(dialect_, cluster_, NetworkTime(cluster_));
    EXPECT_TRUE(estimate.ok()) << estimate.status();
    return estimate->seconds;
  }

  Cluster cluster_;
  Dialect dialect_;
};

TEST_F(PuzzlesTest, ReferenceSolutions) {
  const std::vector<PuzzleSolution> solutions = PuzzleSolutions();
  ASSERT_EQ(solutions.size(), 8);
  for (const PuzzleSolution& solution : solutions) {
    SCOPED_TRACE(solution.name);
    EXPECT_EQ(MostNumbers(*solution.run), solution.numbers);
    EXPECT_NEAR(Seconds(solution.run), solution.seconds, 1e-9);
  }
}

// Layers of the puzzles.
class LayerBlock : public Block {
 public:
  LayerBlock(std::string name, int64_t in)
      : Block(std::move(name)),
        linear_(AddChild<LinearLayer>("linear", in, kPuzzleWidth,
                                      LinearLayer::Options{.bias = Bias::kNo})) {
    cost = {kPuzzleWidth * kPuzzleWidth, kPuzzleWidth};
  }

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    const Variable& x = inputs[0];
    const int64_t batch = x.shape()[0];
    const Shape flat = {batch, x.value.elements() / batch};
    return {linear_(pass, x.shape() == flat ? x : Reshape(pass.tape, x, flat))};
  }

 private:
  LinearLayer& linear_;
};

// Lockstep's own steps: the strategies of the puzzles that it has.
TEST_F(PuzzlesTest, RecordedSteps) {
  struct Puzzle {
    const char* name;
    int layers;
    double time;
    std::vector<std::string> settings;
  };
  const std::string config = testing::TempDir() + "/puzzle.toml";
  ASSERT_TRUE(WriteFileAtomically(config, R"(
train = {steps = 2}
data = {kind = "shapes"}
batch = {size = 1024}
optimizer = {kind = "sgd", momentum = 0.9}
schedule = {learning_rate = 0.01}
run = {threads = 1}
)")
                  .ok());
  const std::string each = "data_parallel.first_bucket_bytes=1";
  for (const Puzzle& puzzle :
       {Puzzle{"standard", 2, 17.0, {}},
        Puzzle{"gradient accumulation", 2, 17.0, {"cut.micro_batches=4"}},
        Puzzle{"DDP", 2, 5.6, {"mesh.dp=4", each, "data_parallel.bucket_bytes=1"}},
        Puzzle{"weight-sharded", 6, 20.4, {"mesh.dp=4", "data_parallel.shard=parameters"}},
        Puzzle{"FSDP",
               6,
               20.4,
               {"mesh.dp=4", "data_parallel.shard=parameters", "data_parallel.accumulate=shards"}},
        Puzzle{"pipeline",
               8,
               67.4,
               {"mesh.pp=4", "pipeline.schedule=gpipe", "pipeline.balance=[2,2,2,2]"}},
        Puzzle{"GPipe",
               8,
               33.8,
               {"mesh.pp=4", "cut.micro_batches=4", "pipeline.schedule=gpipe",
                "pipeline.balance=[2,2,2,2]"}}}) {
    SCOPED_TRACE(puzzle.name);
    CommandLine command_line;
    command_line.configs = {config};
    command_line.assignments = puzzle.settings;
    auto run = RecordRun(command_line, EnginePreset("plan", {}),
                         [&](const Config&, const Dataset& dataset) -> absl::StatusOr<Model> {
                           Model model;
                           for (int layer = 0; layer < puzzle.layers; ++layer) {
                             model.blocks.push_back(std::make_unique<LayerBlock>(
                                 "layer" + std::to_string(layer),
                                 layer > 0 ? kPuzzleWidth : dataset.input_shape().elements()));
                           }
                           return model;
                         });
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_NEAR(Seconds(std::make_shared<const RecordedRun>(*std::move(run))), puzzle.time, 1e-9);
  }
}

}  // namespace
}  // namespace lockstep
