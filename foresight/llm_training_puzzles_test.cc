// The reference solutions of LLM-Training-Puzzles (Alexander Rush,
// github.com/srush/LLM-Training-Puzzles), under its cost model: foresight/dialects and
// foresight/clusters say what it is. Lockstep's own steps of the puzzles' strategies take the times
// of the solutions. What a solution holds at a time is its own choice (some keep outputs or
// gradients that they need no more), and the last one shards layers over all ranks of a pipeline,
// which no strategy of Lockstep does: so the solutions are written down here, operation by
// operation, as recorded steps.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/file.h"
#include "core/nn/layers.h"
#include "core/run/recorded_step.h"
#include "foresight/cluster.h"
#include "foresight/dialect.h"
#include "foresight/kernel_tensors.h"
#include "foresight/network_time.h"
#include "foresight/recorded_run.h"
#include "foresight/step_time.h"
#include "gtest/gtest.h"
#include "strategies/engine/preset.h"

namespace lockstep {
namespace {

constexpr int64_t kWidth = 512, kRows = 256;  // of a layer; of a batch
constexpr int64_t kWeight = kWidth * kWidth;  // numbers of a layer
constexpr int64_t kBatch = kRows * kWidth;    // numbers of a batch's activation

// What one rank of a solution does. Memory counts when an operation begins.
class Program {
 public:
  Program(const MeshShape& mesh, int pp) : mesh_(mesh), pp_(pp) {}

  void Hold(int64_t numbers) { live_ += numbers; }
  void Free(int64_t numbers) { live_ -= numbers; }

  void Forward(int64_t batches) {
    const TensorKind x = Kind(batches * kRows, kWidth), w = Kind(kWidth, kWidth);
    Kernel("Linear", {x, w, {}, {}, x});
  }
  void Backward(int64_t batches) {
    const TensorKind x = Kind(batches * kRows, kWidth), w = Kind(kWidth, kWidth);
    Kernel("LinearBackward", {x, x, w, x, w, {}});
  }
  // Updates the part of a layer that the rank holds: one of `parts`.
  void Update(int64_t parts = 1) {
    std::vector<TensorKind> tensors(UpdateStride());
    tensors[0] = tensors[1] = parts == 1 ? Kind(kWidth, kWidth) : Kind(1, kWeight / parts);
    Kernel("UpdateParameters", std::move(tensors));
  }
  // Makes a call in which all ranks take part, and waits for it.
  void Together(Operation operation) {
    std::vector<int> members(mesh_.ranks());
    for (int rank = 0; rank < mesh_.ranks(); ++rank) members[rank] = rank;
    Call("all", std::move(members), operation, -1);
    Wait();
  }
  // To and from neighbours along pp.
  void Send(int pp) { CallPeer(Operation::kSend, pp); }
  void Receive(int pp) {
    CallPeer(Operation::kRecv, pp);
    Wait();
  }
  // An operation that takes no time, before which memory counts too.
  void Loss() { Look(); }

  RecordedStep Take() {
    step_.stretches.push_back(std::move(stretch_));
    return std::move(step_);
  }

 private:
  static TensorKind Kind(int64_t rows, int64_t columns) {
    TensorKind kind;
    kind.shape = {rows, columns};
    return kind;
  }
  void Look() { stretch_.peak_total = std::max(stretch_.peak_total, live_); }
  void Add(RecordedTask::Kind kind, size_t index) {
    stretch_.tasks.push_back({kind, static_cast<int32_t>(index)});
  }
  void Kernel(const char* kernel, std::vector<TensorKind> tensors) {
    Look();
    step_.kernels.push_back({kernel, std::move(tensors)});
    Add(RecordedTask::Kind::kKernel, step_.kernels.size() - 1);
  }
  void Call(const std::string& name, std::vector<int> members, Operation operation, int root) {
    Look();
    GroupInfo group;
    group.name = name;
    group.members = std::move(members);
    RecordedCall call;
    call.group = std::make_shared<const GroupInfo>(std::move(group));
    call.signature.operation = operation;
    call.signature.root = root;
    call.signature.count = kWeight;
    call.label = name;
    step_.calls.push_back(std::move(call));
    Add(RecordedTask::Kind::kCall, step_.calls.size() - 1);
  }
  void CallPeer(Operation operation, int pp) {
    const int low = std::min(pp, pp_);
    Call("stages", {mesh_.RankAt({.pp = low}), mesh_.RankAt({.pp = low + 1})}, operation,
         pp == low ? 0 : 1);
  }
  void Wait() { Add(RecordedTask::Kind::kWait, step_.calls.size() - 1); }

  const MeshShape mesh_;
  const int pp_;
  int64_t live_ = 0;
  RecordedStep step_;
  RecordedStretch stretch_;
};

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

  // `solution` of each stage takes `time` steps, and `memory` on the fullest.
  void Expect(int pp, int dp, const std::function<void(Program&, int pp)>& solution, double time,
              int64_t memory) {
    auto run = std::make_shared<RecordedRun>();
    run->settings.mesh.pp = pp;
    run->settings.mesh.dp = dp;
    for (int stage = 0; stage < pp; ++stage) {
      Program program(run->settings.mesh, stage);
      solution(program, stage);
      run->steps.push_back(program.Take());
    }
    int64_t most = 0;
    for (int stage = 0; stage < pp; ++stage) {
      most = std::max(most, MemoryOf(run->steps[stage], run->Stretches(stage)).peak_total);
    }
    EXPECT_EQ(most, memory);
    EXPECT_NEAR(Seconds(run), time, 1e-9);
  }

  Cluster cluster_;
  Dialect dialect_;
};

// Values and optimizer state of a layer, or of one of its parts.
constexpr int64_t State(int64_t parts = 1) { return 2 * kWeight / parts; }

TEST_F(PuzzlesTest, Standard) {
  const auto solution = [](Program& p, int) {
    p.Hold(2 * State() + 4 * kBatch);
    for (int layer = 0; layer < 2; ++layer) {
      p.Forward(4);
      p.Hold(4 * kBatch);
    }
    p.Loss();  // the gradient takes the output's place
    for (int layer = 0; layer < 2; ++layer) {
      p.Backward(4);
      p.Hold(kWeight);
      p.Free(4 * kBatch);  // the input's gradient takes the place of the output's; the input goes
    }
    p.Free(4 * kBatch);
    for (int layer = 0; layer < 2; ++layer) p.Update();
  };
  Expect(1, 1, solution, 17.0, 2621440);
}

TEST_F(PuzzlesTest, GradientAccumulation) {
  const auto solution = [](Program& p, int) {
    p.Hold(2 * State());
    for (int batch = 0; batch < 4; ++batch) {
      p.Hold(kBatch);
      for (int layer = 0; layer < 2; ++layer) {
        p.Forward(1);
        p.Hold(kBatch);
      }
      p.Loss();
      for (int layer = 0; layer < 2; ++layer) {
        p.Backward(1);
        if (batch == 0) p.Hold(kWeight);  // later ones are added to it
        p.Free(kBatch);
      }
      p.Free(kBatch);
    }
    for (int layer = 0; layer < 2; ++layer) p.Update();
  };
  Expect(1, 1, solution, 17.0, 1966080);
}

TEST_F(PuzzlesTest, DistributedDataParallel) {
  const auto solution = [](Program& p, int) {
    p.Hold(2 * State() + kBatch);
    for (int layer = 0; layer < 2; ++layer) {
      p.Forward(1);
      p.Hold(kBatch);
    }
    p.Loss();
    p.Hold(kBatch);  // the output stays
    for (int layer = 0; layer < 2; ++layer) {
      p.Backward(1);
      p.Hold(kWeight);
      p.Free(kBatch);
    }
    for (int layer = 0; layer < 2; ++layer) {
      p.Together(Operation::kAllReduce);
      p.Update();
    }
  };
  Expect(1, 4, solution, 5.6, 1835008);
}

// Six layers, of which each of four ranks has a part.
void ForwardOfParts(Program& p) {
  p.Hold(6 * State(4) + kBatch);
  for (int layer = 0; layer < 6; ++layer) {
    p.Together(Operation::kAllGather);
    p.Hold(kWeight);
    p.Forward(1);
    p.Hold(kBatch);
    p.Free(kWeight);
  }
  p.Loss();
}

TEST_F(PuzzlesTest, WeightShardedDataParallel) {
  const auto solution = [](Program& p, int) {
    ForwardOfParts(p);
    p.Hold(kBatch);  // the output stays
    for (int layer = 0; layer < 6; ++layer) {
      p.Together(Operation::kAllGather);
      p.Hold(kWeight);
      p.Backward(1);
      p.Hold(kWeight);
      p.Free(kBatch + kWeight);
    }
    for (int layer = 0; layer < 6; ++layer) {
      p.Together(Operation::kAllReduce);
      p.Update(4);
    }
  };
  Expect(1, 4, solution, 20.4, 2752512);
}

TEST_F(PuzzlesTest, FullyShardedDataParallel) {
  const auto solution = [](Program& p, int) {
    ForwardOfParts(p);
    for (int layer = 0; layer < 6; ++layer) {
      p.Together(Operation::kAllGather);
      p.Hold(kWeight);
      p.Backward(1);
      p.Hold(kWeight + kBatch);
      p.Together(Operation::kReduceScatter);
      p.Free(kWeight - kWeight / 4);
      p.Free(2 * kBatch + kWeight);
    }
    for (int layer = 0; layer < 6; ++layer) p.Update(4);
  };
  Expect(1, 4, solution, 20.4, 2359296);
}

TEST_F(PuzzlesTest, Pipeline) {
  const auto solution = [](Program& p, int pp) {
    p.Hold(2 * State());
    if (pp > 0) p.Receive(pp - 1);
    p.Hold(4 * kBatch);
    for (int layer = 0; layer < 2; ++layer) {
      p.Forward(4);
      p.Hold(4 * kBatch);
    }
    if (pp < 3) {
      p.Send(pp + 1);
      p.Receive(pp + 1);
    } else {
      p.Loss();
    }
    p.Hold(4 * kBatch);  // the output stays
    for (int layer = 0; layer < 2; ++layer) {
      p.Backward(4);
      p.Hold(kWeight);
      p.Free(4 * kBatch);
    }
    if (pp > 0) p.Send(pp - 1);
    for (int layer = 0; layer < 2; ++layer) p.Update();
  };
  Expect(4, 1, solution, 67.4, 3145728);
}

TEST_F(PuzzlesTest, GPipe) {
  const auto solution = [](Program& p, int pp) {
    p.Hold(2 * State());
    for (int batch = 0; batch < 4; ++batch) {
      if (pp > 0) p.Receive(pp - 1);
      p.Hold(kBatch);
      for (int layer = 0; layer < 2; ++layer) {
        p.Forward(1);
        p.Hold(kBatch);
      }
      if (pp < 3) p.Send(pp + 1);
    }
    for (int batch = 0; batch < 4; ++batch) {
      if (pp < 3) {
        p.Receive(pp + 1);
      } else {
        p.Loss();
      }
      p.Hold(kBatch);  // output and gradient of the input stay
      for (int layer = 0; layer < 2; ++layer) {
        p.Backward(1);
        p.Hold(kWeight);  // a gradient for each batch
        p.Free(kBatch);
      }
      if (pp > 0) p.Send(pp - 1);
    }
    for (int layer = 0; layer < 2; ++layer) {
      p.Free(3 * kWeight);
      p.Update();
    }
  };
  Expect(4, 1, solution, 33.8, 4194304);
}

// All 16 ranks have a part of each of the four layers and gather each together; one stage computes.
TEST_F(PuzzlesTest, PipelineOfParts) {
  const auto solution = [](Program& p, int pp) {
    p.Hold(4 * State(16));
    for (int layer = 0; layer < 4; ++layer) {
      if (layer == pp) {
        if (pp > 0) p.Receive(pp - 1);
        p.Hold(kBatch);
      }
      p.Together(Operation::kAllGather);
      p.Hold(kWeight);
      if (layer == pp) {
        p.Forward(1);
        p.Hold(kBatch);
      }
      p.Free(kWeight);
      if (layer == pp && pp < 3) p.Send(pp + 1);
    }
    for (int layer = 3; layer >= 0; --layer) {
      if (layer == pp) {
        if (pp < 3) {
          p.Receive(pp + 1);
        } else {
          p.Loss();
        }
        p.Hold(kBatch);  // the output stays
      }
      p.Together(Operation::kAllGather);
      p.Hold(kWeight);
      if (layer == pp) {
        p.Backward(1);
        p.Hold(kWeight);
        p.Free(kBatch);
      }
      // The other ranks contribute the gradient of an empty batch, which takes no memory.
      p.Together(Operation::kReduceScatter);
      if (layer == pp) p.Free(kWeight);
      p.Hold(kWeight / 16);
      p.Free(kWeight);
      if (layer == pp && pp > 0) p.Send(pp - 1);
    }
    for (int layer = 0; layer < 4; ++layer) {
      p.Update(16);
      p.Hold(State(16));  // beside the old values
    }
  };
  Expect(4, 4, solution, 16.0, 966656);
}

// Layers of the puzzles.
class LayerBlock : public Block {
 public:
  LayerBlock(std::string name, int64_t in)
      : Block(std::move(name)),
        linear_(
            AddChild<LinearLayer>("linear", in, kWidth, LinearLayer::Options{.bias = Bias::kNo})) {
    cost = {kWeight, kWidth};
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
                                 layer > 0 ? kWidth : dataset.input_shape().elements()));
                           }
                           return model;
                         });
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_NEAR(Seconds(std::make_shared<const RecordedRun>(*std::move(run))), puzzle.time, 1e-9);
  }
}

}  // namespace
}  // namespace lockstep
