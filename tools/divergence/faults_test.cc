// Faults of training programs, put into a run by hooks that only this test has: each is found at
// the right operation and tensor. And runs that agree, of which none is reported.

#include <algorithm>  // std::swap_ranges
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/probe/probed_run.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/engine/preset.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"
#include "tools/divergence/divergence.h"
#include "tools/divergence/judgement.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// What goes wrong, and when. All members may be left out.
struct Fault {
  std::function<void(Rank&, Model&)> of_model = [](Rank&, Model&) {};
  std::function<Batch(std::vector<Batch>& read, BatchSource&)> next_batch = nullptr;
  std::function<int64_t(int64_t)> step = [](int64_t step) { return step; };
  std::function<void(std::vector<StateTensor>& before, std::vector<StateTensor>& after)>
      after_step = nullptr;
  std::function<void(std::vector<StateTensor>)> restored = [](std::vector<StateTensor>) {};
};

float* Elements(const StateTensor& tensor) { return tensor.tensor.data<float>(); }

StateTensor& Named(std::vector<StateTensor>& state, const std::string& name) {
  return *std::find_if(state.begin(), state.end(),
                       [&name](const StateTensor& tensor) { return tensor.name == name; });
}

Parameter& Named(const Model& model, const std::string& name) {
  const std::vector<Parameter*> parameters = model.Parameters();
  return **std::find_if(parameters.begin(), parameters.end(),
                        [&name](const Parameter* parameter) { return parameter->name == name; });
}

Block& BlockNamed(Model& model, const std::string& name) {
  return **std::find_if(model.blocks.begin(), model.blocks.end(),
                        [&name](const auto& block) { return block->name() == name; });
}

void Scale(const Tensor& tensor, float factor) {
  for (float& x : tensor.span<float>()) x *= factor;
}

// A strategy with a fault.
class Faulty : public Strategy, private BatchSource {
 public:
  Faulty(std::unique_ptr<Strategy> strategy, const Fault& fault)
      : strategy_(std::move(strategy)), fault_(fault) {}

  std::vector<int64_t> micro_batches() const override { return strategy_->micro_batches(); }
  StepResult TrainStep(int64_t step, BatchSource& batches) override {
    batches_ = &batches;
    read_.clear();
    std::vector<std::vector<float>> kept;
    std::vector<StateTensor> state = strategy_->State();
    for (const StateTensor& tensor : state) {
      kept.emplace_back(Elements(tensor), Elements(tensor) + tensor.tensor.elements());
    }
    const StepResult result = strategy_->TrainStep(fault_.step(step), *this);
    if (fault_.after_step == nullptr) return result;
    CpuAllocator allocator;
    std::vector<StateTensor> before = state;
    for (size_t i = 0; i < before.size(); ++i) {
      before[i].tensor =
          Tensor::Empty(allocator, state[i].tensor.shape(), DType::kF32, MemoryClass::kWorkspace);
      std::copy(kept[i].begin(), kept[i].end(), Elements(before[i]));
    }
    fault_.after_step(before, state);
    return result;
  }
  EvaluationSums Evaluate(const Batch& batch) override { return strategy_->Evaluate(batch); }
  const ModelLayout& layout() const override { return strategy_->layout(); }
  std::vector<StateTensor> State() override { return strategy_->State(); }
  void Restored() override {
    fault_.restored(strategy_->State());
    strategy_->Restored();
  }
  CostPrediction Predict() const override { return strategy_->Predict(); }

 private:
  Batch Next() override {
    return fault_.next_batch ? fault_.next_batch(read_, *batches_) : batches_->Next();
  }

  std::unique_ptr<Strategy> strategy_;
  Fault fault_;
  BatchSource* batches_ = nullptr;
  std::vector<Batch> read_;
};

StrategyDefinition WithFault(const StrategyDefinition& strategy, const Fault& fault) {
  StrategyDefinition faulty = strategy;
  faulty.make = [make = strategy.make, fault](StrategyInputs inputs) -> std::unique_ptr<Strategy> {
    fault.of_model(inputs.rank, inputs.model);
    return std::make_unique<Faulty>(make(std::move(inputs)), fault);
  };
  return faulty;
}

StrategyDefinition Engine() { return EnginePreset("engine", {}); }

const Assignments kWorkload = {"train.steps=2",         "probe.steps=2", "probe.values=true",
                               "cut.shards=2",          "cut.tokens=2",  "cut.micro_batches=1",
                               "cut.features=2",        "batch.size=8",  "schedule.kind=constant",
                               "schedule.total_steps=2"};

// Reads the probes of the last run, which moves to a folder that later runs leave alone.
ProbedRun Keep(const std::string& name) {
  const std::filesystem::path out = RunFolder();
  const std::filesystem::path kept = out.parent_path().parent_path() / ("kept_" + name);
  std::filesystem::remove_all(kept);
  std::filesystem::rename(out, kept);
  absl::StatusOr<ProbedRun> run = ReadProbedRun(kept.string());
  EXPECT_TRUE(run.ok()) << run.status();
  return run.ok() ? *std::move(run) : ProbedRun();
}

struct Found {
  std::string where;  // the first difference
  DifferenceKind kind = DifferenceKind::kOther;
  std::string text = {};
  std::optional<ElementDifference> element = {};
};

Found Find(const ProbedRun& a, const ProbedRun& b) {
  const absl::StatusOr<Divergence> divergence = FindDivergence(a, b);
  EXPECT_TRUE(divergence.ok()) << divergence.status();
  if (!divergence.ok() || divergence->differences.empty()) return {.where = "nowhere"};
  const Difference& first = divergence->differences.front();
  const absl::StatusOr<Judgement> judgement = Judge(a, b, first);
  EXPECT_TRUE(judgement.ok()) << judgement.status();
  return {first.key().ToString(), judgement->kind, judgement->text, judgement->first};
}

// What the tool finds between `single` and a run with the fault.
Found FindFault(const StrategyDefinition& strategy, const Fault& fault,
                const Assignments& mesh = {}, const Assignments& workload = {}) {
  const Assignments both = With(kWorkload, workload);
  RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), both);
  const ProbedRun single = Keep("a");
  RunStrategy(WithFault(strategy, fault), MakeModel, SmallGptConfig(), With(both, mesh));
  return Find(single, Keep("b"));
}

TEST(FaultsTest, SwappedMicroBatches) {
  const auto swap = [](std::vector<Batch>& read, BatchSource& batches) {
    if (read.empty()) {
      read.push_back(batches.Next());
      read.push_back(batches.Next());
    }
    Batch next = read.back();
    read.pop_back();
    return next;
  };
  const Found found = FindFault(SingleStrategy(), {.next_batch = swap});
  EXPECT_EQ(found.where, "step 1, micro-batch 0, forward of batch.inputs");
  EXPECT_EQ(found.kind, DifferenceKind::kOtherPlace);
  EXPECT_THAT(found.text, HasSubstr("micro-batch 1"));
}

TEST(FaultsTest, GradientsOfABlockScaledTwice) {
  const auto scale = [](Rank&, Model& model) {
    Block& block = BlockNamed(model, "blocks.1");
    block.AddHooks({.after_backward = [&block] {
      for (const Parameter* each : block.Parameters()) Scale(each->gradient, 2);
    }});
  };
  const Found found = FindFault(SingleStrategy(), {.of_model = scale});
  EXPECT_THAT(found.where, HasSubstr("step 1, shard 0, shard gradient of blocks.1."));
  EXPECT_EQ(found.kind, DifferenceKind::kFactor);
  EXPECT_THAT(found.text, HasSubstr("A times 2"));
}

TEST(FaultsTest, GradientOfATiedEmbeddingIsLost) {
  const auto lose = [](Rank&, Model& model) {
    Parameter& head = Named(model, "head.logits.weight");
    BlockNamed(model, "head").AddHooks({.after_backward = [&head] { Scale(head.gradient, 0); }});
  };
  const Found found = FindFault(Engine(), {.of_model = lose}, {"mesh.pp=2"});
  EXPECT_EQ(found.where, "step 1, gradient of embedding.token.weight");
}

// The hook runs when the shard's gradient is complete, and before it is summed over ranks.
TEST(FaultsTest, OneRanksContributionIsLost) {
  const auto lose = [](Rank& rank, Model& model) {
    if (rank.rank != 1) return;
    Parameter& bias = Named(model, "blocks.0.attention.projection.bias");
    BlockNamed(model, "blocks.0").AddHooks({.after_backward = [&bias] {
      Scale(bias.gradient, 0);
    }});
  };
  const Found found = FindFault(Engine(), {.of_model = lose}, {"mesh.dp=2"});
  EXPECT_EQ(found.where, "step 1, gradient of blocks.0.attention.projection.bias");
  EXPECT_EQ(found.kind, DifferenceKind::kOneShare);
  EXPECT_THAT(found.text, HasSubstr("shard 0"));
}

TEST(FaultsTest, AParameterStaysStale) {
  const std::string name = "blocks.1.network.down.weight";
  const auto restore = [name](std::vector<StateTensor>& before, std::vector<StateTensor>& after) {
    const StateTensor& old = Named(before, name);
    std::copy(Elements(old), Elements(old) + old.tensor.elements(), Elements(Named(after, name)));
  };
  const Found found = FindFault(SingleStrategy(), {.after_step = restore});
  EXPECT_EQ(found.where, "step 1, state after of " + name);
  EXPECT_EQ(found.kind, DifferenceKind::kStale);
}

TEST(FaultsTest, NormalisationsDecay) {
  const std::string name = "blocks.0.network.norm.weight";
  const auto decay = [name](std::vector<StateTensor>&, std::vector<StateTensor>& after) {
    Scale(Named(after, name).tensor, 0.999f);
  };
  const Found found = FindFault(SingleStrategy(), {.after_step = decay});
  EXPECT_EQ(found.where, "step 1, state after of " + name);
  EXPECT_EQ(found.kind, DifferenceKind::kFactor);
  EXPECT_THAT(found.text, HasSubstr("A times 0.999"));
}

TEST(FaultsTest, DropoutMasksOfAnotherStep) {
  const Found found = FindFault(SingleStrategy(), {.step = [](int64_t step) { return step + 7; }});
  EXPECT_EQ(found.where, "step 1, micro-batch 0, forward of embedding.dropout");
  EXPECT_EQ(found.kind, DifferenceKind::kOtherMask);
}

TEST(FaultsTest, AdamCountsItsStepsFromOneTooMany) {
  const Found found = FindFault(SingleStrategy(), {.step = [](int64_t step) { return step + 1; }},
                                {}, {"model.dropout=0"});
  // Moments agree: what differs first is a parameter.
  EXPECT_EQ(found.where, "step 1, state after of embedding.token.weight");
}

TEST(FaultsTest, ABiasIsAddedOnEachTensorParallelRank) {
  const auto twice = [](Rank&, Model& model) {
    Parameter& bias = Named(model, "blocks.0.attention.projection.bias");
    BlockNamed(model, "blocks.0")
        .AddHooks({.before_forward = [&bias](Pass&) { Scale(bias.value, 2); },
                   .after_forward = [&bias](Pass&) { Scale(bias.value, 0.5); }});
  };
  // It starts at zero.
  const Found found = FindFault(Engine(), {.of_model = twice}, {"mesh.tp=2"});
  EXPECT_EQ(found.where, "step 2, micro-batch 0, forward of blocks.0.attention.projection");
  ASSERT_TRUE(found.element.has_value());
  EXPECT_EQ(found.element->index.size(), 2u);
}

TEST(FaultsTest, QueriesAndKeysOfAPackedProjectionAreSwapped) {
  const auto swap = [](Rank&, Model& model) {
    const auto exchange = [&weight = Named(model, "blocks.1.attention.qkv.weight")](Pass&) {
      float* rows = weight.value.data<float>();
      const int64_t third = weight.value.elements() / 3;
      std::swap_ranges(rows, rows + third, rows + third);
    };
    BlockNamed(model, "blocks.1").AddHooks({.before_forward = exchange, .after_forward = exchange});
  };
  const Found found = FindFault(Engine(), {.of_model = swap}, {"mesh.tp=2"});
  EXPECT_EQ(found.where, "step 1, micro-batch 0, forward of blocks.1.attention.qkv");
  EXPECT_EQ(found.kind, DifferenceKind::kOtherOrder);
}

TEST(FaultsTest, ACheckpointMissesOptimizerState) {
  const Assignments longer =
      With(kWorkload, {"train.steps=4", "schedule.total_steps=4", "probe.first_step=2"});
  const Assignments first = With(longer, {"train.steps=2"});
  const auto forget = [](std::vector<StateTensor> state) {
    for (const StateTensor& tensor : state) {
      if (IsOptimizerState(tensor.name)) Scale(tensor.tensor, 0);
    }
  };
  RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), longer);
  const ProbedRun whole = Keep("a");
  RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), first);
  ResumeStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), longer);
  EXPECT_EQ(Find(whole, Keep("b")).where, "nowhere");
  RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), first);
  ResumeStrategy(WithFault(SingleStrategy(), {.restored = forget}), MakeModel, SmallGptConfig(),
                 longer);
  const Found found = Find(whole, Keep("b"));
  EXPECT_THAT(found.where, HasSubstr("step 3, state before of optimizer."));
  EXPECT_EQ(found.kind, DifferenceKind::kZero);
}

// 11 runs, each pair of which is compared: 55 pairs.
TEST(AgreementTest, NoPairOfMeshesIsReported) {
  const Assignments hashes = With(kWorkload, {"probe.values=false", "cut.shards=4", "cut.tokens=4",
                                              "train.steps=1", "probe.steps=1"});
  const std::vector<Assignments> meshes = {
      {},
      {"mesh.dp=2"},
      {"mesh.dp=4"},
      {"mesh.tp=2"},
      {"mesh.cp=2"},
      {"mesh.pp=2"},
      {"mesh.dp=2", "mesh.tp=2"},
      {"mesh.dp=2", "data_parallel.shard=optimizer"},
      {"mesh.dp=2", "data_parallel.shard=parameters"},
      {"mesh.pp=2", "mesh.cp=2", "recompute.granularity=full"},
      {"mesh.tp=2", "mesh.cp=2", "tensor_parallel.sequence_parallel=true"}};
  std::vector<ProbedRun> runs;
  for (size_t i = 0; i < meshes.size(); ++i) {
    RunStrategy(Engine(), MakeModel, SmallGptConfig(), With(hashes, meshes[i]));
    runs.push_back(Keep("mesh" + std::to_string(i)));
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    for (size_t j = i + 1; j < runs.size(); ++j) {
      const absl::StatusOr<Divergence> divergence = FindDivergence(runs[i], runs[j]);
      ASSERT_TRUE(divergence.ok()) << divergence.status();
      EXPECT_GT(divergence->compared, 100);
      EXPECT_TRUE(divergence->differences.empty())
          << i << ", " << j << ": " << divergence->differences[0].key().ToString();
    }
  }
}

TEST(RefusedTest, RunsOfDifferentWorkloads) {
  const Assignments hashes = With(kWorkload, {"probe.values=false"});
  RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), hashes);
  const ProbedRun a = Keep("a");
  RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(),
              With(hashes, {"batch.size=16", "model.width=64"}));
  const absl::Status error = FindDivergence(a, Keep("b")).status();
  EXPECT_THAT(error.message(),
              HasSubstr("differ by configuration: table [model], batch.size (8 and "
                        "16); give both the same"));
}

TEST(RefusedTest, RunsWithoutACommonPlace) {
  const Assignments hashes = With(kWorkload, {"probe.values=false", "probe.steps=1"});
  RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), hashes);
  const ProbedRun a = Keep("a");
  RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), With(hashes, {"probe.first_step=1"}));
  EXPECT_THAT(FindDivergence(a, Keep("b")).status().message(),
              HasSubstr("have no place in common; probe the same steps"));
}

}  // namespace
}  // namespace lockstep
