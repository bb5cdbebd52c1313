#include "foresight/recorded_run.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/file.h"
#include "core/comm/operation.h"
#include "core/run/rehearsal.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/engine/preset.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

struct Case {
  std::string name;
  SmallModel model;
  Assignments assignments;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class RecordedRunTest : public testing::TestWithParam<Case> {
 protected:
  CommandLine WithConfig() const {
    const std::string file = testing::TempDir() + "/" + GetParam().name + ".toml";
    EXPECT_TRUE(WriteFileAtomically(file, SmallConfig(GetParam().model)).ok());
    CommandLine command_line;
    command_line.configs = {file};
    command_line.assignments = With({"train.steps=8"}, GetParam().assignments);
    return command_line;
  }
  const StrategyDefinition strategy_ = EnginePreset("plan", {});
};

// What a rank does, one line each.
std::vector<std::string> Lines(const RecordedStep& step, const std::vector<int32_t>& stretches) {
  std::vector<std::string> lines;
  for (const int32_t stretch : stretches) {
    for (const RecordedTask& task : step.stretches[stretch].tasks) {
      std::string line;
      if (task.kind == RecordedTask::Kind::kKernel) {
        line = step.kernels[task.index].kernel;
        // The losses of the step: one tensor for each micro-batch that is recorded.
        if (line == "SumOfAll") continue;
        for (const TensorKind& tensor : step.kernels[task.index].tensors) {
          line += " " + std::string(Name(tensor.dtype)) + tensor.shape.ToString();
        }
      } else {
        const RecordedCall& call = step.calls[task.index];
        line = (task.kind == RecordedTask::Kind::kWait ? "wait " : "") + call.group->ToString() +
               " " + Name(call.signature.operation) + " " + DescribeArguments(call.signature) +
               " " + call.label;
      }
      lines.push_back(std::move(line));
    }
  }
  return lines;
}

std::vector<int32_t> All(const RecordedStep& step) {
  std::vector<int32_t> all;
  for (size_t i = 0; i < step.stretches.size(); ++i) all.push_back(static_cast<int32_t>(i));
  return all;
}

// From a few micro-batches comes what all of them do, and the memory that they take.
TEST_P(RecordedRunTest, AFewMicroBatchesStandForAll) {
  const auto run = CheckRun(WithConfig(), strategy_, MakeModel);
  ASSERT_TRUE(run.ok()) << run.status();
  const auto whole = RecordStep(*run);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const auto recorded = RecordRun(WithConfig(), strategy_, MakeModel);
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  const bool is_by_size = GetParam().name == "balanced_by_size";
  EXPECT_EQ(recorded->recorded_of_shard < run->settings.cut.micro_batches, !is_by_size);
  ASSERT_EQ(recorded->steps.size(), whole->size());
  for (size_t pp = 0; pp < whole->size(); ++pp) {
    SCOPED_TRACE(testing::Message() << "rank " << pp << " along pp");
    const std::vector<int32_t> stretches = recorded->Stretches(static_cast<int>(pp));
    const std::vector<std::string> lines = Lines(recorded->steps[pp], stretches);
    const std::vector<std::string> expected = Lines((*whole)[pp], All((*whole)[pp]));
    for (size_t i = 0; i < std::min(lines.size(), expected.size()); ++i) {
      ASSERT_EQ(lines[i], expected[i]) << "task " << i;
    }
    ASSERT_EQ(lines.size(), expected.size());
    const PeakBytes folded = MemoryOf(recorded->steps[pp], stretches);
    const PeakBytes memory = MemoryOf((*whole)[pp], All((*whole)[pp]));
    EXPECT_EQ(folded.classes, memory.classes);
    EXPECT_EQ(folded.total, memory.total);
  }
}

// One rank for each place along pp does what that rank would do among all: it sends the bytes that
// theory says, and its memory is that of a rehearsal of all ranks.
TEST_P(RecordedRunTest, OneRankStandsForItsLike) {
  const auto run = CheckRun(WithConfig(), strategy_, MakeModel);
  ASSERT_TRUE(run.ok()) << run.status();
  const auto ranks = Rehearse(*run, {.shapes = RehearsalOptions::Shapes::kKnown});
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  const auto recorded = RecordRun(WithConfig(), strategy_, MakeModel);
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  const MeshShape& mesh = run->settings.mesh;
  for (int pp = 0; pp < mesh.pp; ++pp) {
    SCOPED_TRACE(testing::Message() << "rank " << pp << " along pp");
    const Rehearsed& rank = (*ranks)[mesh.RankAt({.pp = pp})];
    const RecordedStep& step = recorded->steps[pp];
    std::map<std::pair<Operation, std::string>, double> sent, predicted;
    for (const int32_t stretch : recorded->Stretches(pp)) {
      for (const RecordedTask& task : step.stretches[stretch].tasks) {
        if (task.kind != RecordedTask::Kind::kCall) continue;
        const RecordedCall& call = step.calls[task.index];
        const double bytes = WireBytes(call.signature, call.group->size(), call.group->rank);
        if (bytes > 0) sent[{call.signature.operation, call.label}] += bytes;
      }
    }
    for (const CostPrediction::Traffic& traffic : rank.prediction.traffic) {
      if (traffic.often == CostPrediction::Often::kEachStep && traffic.wire_bytes > 0) {
        predicted[{traffic.operation, traffic.label}] += traffic.wire_bytes;
      }
    }
    ASSERT_EQ(sent.size(), predicted.size());
    for (const auto& [what, bytes] : predicted) {
      EXPECT_NEAR(sent[what], bytes, 1e-9 * bytes) << Name(what.first) << " of " << what.second;
    }
    const PeakBytes memory = MemoryOf(step, recorded->Stretches(pp));
    for (const MemoryClass memory_class :
         {MemoryClass::kParameters, MemoryClass::kGradients, MemoryClass::kOptimizerState,
          MemoryClass::kActivations, MemoryClass::kCommunication, MemoryClass::kWorkspace}) {
      EXPECT_EQ(memory.classes[static_cast<int>(memory_class)], rank.memory.peak(memory_class))
          << Name(memory_class);
    }
    EXPECT_EQ(memory.total, rank.memory.peak_total());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, RecordedRunTest,
    testing::Values(Case{"one_rank", SmallModel::kGpt, {"cut.micro_batches=6"}},
                    Case{"ddp", SmallModel::kGpt, {"mesh.dp=2", "cut.micro_batches=6"}},
                    Case{"fsdp_shards",
                         SmallModel::kResNet,
                         {"mesh.dp=2", "cut.shards=4", "batch.size=24", "cut.micro_batches=6",
                          "data_parallel.shard=parameters"}},
                    Case{"zero2_replicas",
                         SmallModel::kGpt,
                         {"mesh.dp=2", "mesh.replicas=2", "cut.micro_batches=6", "batch.size=24",
                          "data_parallel.shard=gradients"}},
                    Case{"tensor_sequence",
                         SmallModel::kGpt,
                         {"mesh.tp=2", "mesh.dp=2", "cut.micro_batches=4", "batch.size=8",
                          "tensor_parallel.sequence_parallel=true"}},
                    Case{"context",
                         SmallModel::kGpt,
                         {"mesh.cp=2", "mesh.tp=2", "mesh.pp=2", "cut.micro_batches=4",
                          "batch.size=8", "recompute.operations=['attention']"}},
                    Case{"ring",
                         SmallModel::kGpt,
                         {"mesh.cp=4", "cut.micro_batches=4", "batch.size=8",
                          "context_parallel.attention=ring"}},
                    Case{"gpipe",
                         SmallModel::kResNet,
                         {"mesh.pp=3", "cut.micro_batches=6", "pipeline.schedule=gpipe"}},
                    Case{"one_f_one_b",
                         SmallModel::kGpt,
                         {"mesh.pp=2", "mesh.dp=2", "cut.micro_batches=6", "pipeline.schedule=1f1b",
                          "recompute.micro_batches=except_last"}},
                    Case{"interleaved",
                         SmallModel::kGpt,
                         {"mesh.pp=2", "cut.micro_batches=12", "pipeline.schedule=interleaved_1f1b",
                          "pipeline.stages_per_rank=2"}},
                    Case{"dualpipe",
                         SmallModel::kGpt,
                         {"mesh.pp=2", "cut.micro_batches=12", "pipeline.schedule=dualpipe_v"}},
                    Case{"balanced_by_size",
                         SmallModel::kUNet,
                         {"mesh.pp=2", "cut.micro_batches=6", "pipeline.schedule=gpipe",
                          "pipeline.balance=size"}},
                    Case{"zero_bubble",
                         SmallModel::kUNet,
                         {"mesh.pp=2", "cut.micro_batches=6", "pipeline.schedule=zb_h1"}},
                    Case{"divided_halves",
                         SmallModel::kGpt,
                         {"mesh.pp=2", "mesh.dp=2", "cut.shards=4", "batch.size=48",
                          "cut.micro_batches=12", "pipeline.schedule=zb_h1",
                          "data_parallel.unshard=step", "data_parallel.shard=parameters"}}),
    testing::PrintToStringParamName());

}  // namespace
}  // namespace lockstep
