// Rehearsals, of every strategy: what they say of a run's memory is what the run's books say.

#include "core/run/rehearsal.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/cp/cp.h"
#include "strategies/ddp/ddp.h"
#include "strategies/ep/ep.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/fsdp_pipe/fsdp_pipe.h"
#include "strategies/gpipe/gpipe.h"
#include "strategies/layerwise/layerwise.h"
#include "strategies/lora/lora.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"
#include "strategies/tp/tp.h"
#include "strategies/zero1/zero1.h"
#include "strategies/zero2/zero2.h"

namespace lockstep {
namespace {

struct Case {
  StrategyDefinition strategy;
  Assignments assignments;
};

// What a rank sends to other stages in a step, and to tell them of it.
int64_t BytesInFlight(const RankReport& report) {
  double bytes = 0;
  for (const CostPrediction::Traffic& traffic : report.prediction.traffic) {
    if (traffic.operation == Operation::kSend) bytes += traffic.wire_bytes;
  }
  return static_cast<int64_t>(bytes);
}

// Exact, but that what is sent stays until it has been taken, which a rehearsal does not know.
void ExpectRehearsed(const Case& c, const std::string& config) {
  SCOPED_TRACE(c.strategy.name + " " + absl::StrJoin(c.assignments, " "));
  const auto ran = RunStrategy(c.strategy, MakeModel, config, c.assignments);
  const auto rehearsed =
      RehearseStrategy(c.strategy, MakeModel, config, c.assignments, {.profiles = ran[0].profiles});
  ASSERT_EQ(rehearsed.size(), ran.size());
  for (size_t rank = 0; rank < ran.size(); ++rank) {
    const int64_t in_flight = BytesInFlight(ran[rank]);
    for (int i = 0; i < kMemoryClasses; ++i) {
      const auto memory_class = static_cast<MemoryClass>(i);
      SCOPED_TRACE(absl::StrCat(Name(memory_class), " of rank ", rank));
      const int64_t expected = rehearsed[rank].memory.peak(memory_class);
      EXPECT_GE(ran[rank].memory.peak(memory_class), expected);
      EXPECT_LE(ran[rank].memory.peak(memory_class), expected + in_flight);
    }
  }
}

class RehearsalTest : public ::testing::TestWithParam<SmallModel> {};

TEST_P(RehearsalTest, OfOneMicroBatchAfterTheOther) {
  const std::string config = SmallConfig(GetParam());
  for (const Case& c :
       {Case{SingleStrategy(), {}}, Case{SingleStrategy(), {"cut.shards=2"}},
        Case{SingleStrategy(), {"batch.size=10", "cut.micro_batches=4"}},
        Case{SingleStrategy(), {"run.threads=2"}}, Case{DdpStrategy(), {"mesh.dp=2"}},
        Case{Zero1Strategy(), {"mesh.dp=3"}}, Case{Zero2Strategy(), {"mesh.dp=3"}},
        Case{FsdpStrategy(), {"mesh.dp=3"}},
        Case{FsdpStrategy(), {"mesh.dp=2", "data_parallel.reshard=false"}},
        Case{TpStrategy(), {"mesh.tp=2"}}, Case{TpStrategy(), {"mesh.tp=2", "mesh.dp=2"}},
        Case{DdpStrategy(), {"mesh.dp=2", "recompute.granularity=full"}},
        Case{FsdpStrategy(), {"mesh.dp=2", "recompute.granularity=full"}}}) {
    ExpectRehearsed(c, config);
  }
}

TEST_P(RehearsalTest, OfMicroBatchesInFlight) {
  const std::string config = SmallConfig(GetParam());
  for (const Case& c :
       {Case{LayerwiseStrategy(), {"mesh.pp=3"}},
        Case{GPipeStrategy(), {"mesh.pp=2", "recompute.micro_batches=never"}},
        Case{GPipeStrategy(), {"mesh.pp=3", "recompute.micro_batches=always"}},
        Case{GPipeStrategy(), {"mesh.pp=2", "pipeline.schedule=1f1b", "pipeline.balance=\"size\""}},
        Case{GPipeStrategy(),
             {"mesh.pp=2", "recompute.micro_batches=never", "pipeline.balance=\"time\""}},
        Case{GPipeStrategy(), {"mesh.pp=2", "mesh.dp=2", "pipeline.schedule=zb_h1"}},
        Case{GPipeStrategy(),
             {"mesh.pp=2", "pipeline.schedule=zb_v", "recompute.micro_batches=never"}},
        Case{FsdpPipeStrategy(), {"mesh.pp=2", "mesh.dp=2"}},
        Case{GPipeStrategy(),
             {"mesh.pp=2", "pipeline.schedule=zb_h1", "recompute.granularity=full"}},
        Case{FsdpPipeStrategy(), {"mesh.pp=2", "mesh.dp=2", "recompute.blocks=[\"*1*\"]"}}}) {
    ExpectRehearsed({c.strategy, With(c.assignments, {"cut.micro_batches=3"})}, config);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RehearsalTest,
                         ::testing::Values(SmallModel::kGpt, SmallModel::kLlama,
                                           SmallModel::kResNet, SmallModel::kUNet),
                         [](const auto& parameter) { return Name(parameter.param); });

TEST(RehearsalOfDtypesTest, SixteenBits) {
  for (const std::string& config : {SmallGptConfig(), SmallResNetConfig()}) {
    for (const char* compute : {"precision.compute=\"bf16\"", "precision.compute=\"fp16\""}) {
      ExpectRehearsed({DdpStrategy(), {"mesh.dp=2", compute}}, config);
    }
  }
}

TEST(RehearsalOfStatisticsTest, OfEachMicroBatch) {
  const Assignments each = {"train.deferred_batch_norm=false", "cut.micro_batches=3"};
  for (const Case& c : {Case{SingleStrategy(), {}}, Case{DdpStrategy(), {"mesh.dp=2"}},
                        Case{FsdpPipeStrategy(), {"mesh.pp=2", "mesh.dp=2"}}}) {
    ExpectRehearsed({c.strategy, With(c.assignments, each)}, SmallResNetConfig());
  }
}

TEST(RehearsalOfContextTest, OfDividedSequences) {
  for (const Assignments& mesh :
       {Assignments{"mesh.dp=1", "mesh.cp=4"},
        Assignments{"mesh.dp=2", "mesh.cp=2", "recompute.operations=[\"attention\"]"}}) {
    ExpectRehearsed({CpStrategy(), mesh}, SmallGptConfig());
  }
}

// Given which experts the tokens chose, also where loads are uneven. Widths of 20 features, whose
// rows of 80 bytes begin on no boundary, show that copies follow the choice too.
TEST(RehearsalOfExpertsTest, OfUnevenLoads) {
  const Assignments experts = {"model.experts.count=8", "model.experts.top_k=2",
                               "batch.size=16",         "train.steps=6",
                               "model.width=40",        "schedule.learning_rate=0.1"};
  int64_t uneven = 0;
  for (const Case& c :
       {Case{EpStrategy(), {"mesh.dp=4", "mesh.ep=4"}},
        Case{EpStrategy(), {"mesh.dp=4", "mesh.ep=4", "train.steps=1"}},
        Case{EpStrategy(), {"mesh.dp=2", "mesh.ep=2", "lora.layers=['*.experts']", "lora.rank=3"}},
        Case{EpStrategy(), {"mesh.dp=2", "mesh.ep=2", "cut.micro_batches=4"}},
        Case{EpStrategy(), {"mesh.dp=2", "mesh.cp=2", "mesh.ep=4"}},
        Case{EpStrategy(),
             {"mesh.dp=2", "mesh.ep=2", "mesh.tp=2", "tensor_parallel.sequence_parallel=true",
              "recompute.operations=[\"mlp\"]"}},
        Case{EpStrategy(), {"mesh.dp=2", "mesh.ep=2", "model.experts.capacity_factor=1.1"}},
        Case{DdpStrategy(), {"mesh.dp=2"}}}) {
    SCOPED_TRACE(absl::StrJoin(c.assignments, " "));
    const Assignments assignments = With(experts, c.assignments);
    const auto ran = RunStrategy(c.strategy, MakeModel, SmallLlamaConfig(), assignments);
    std::vector<std::vector<RoutedStep>> routed;
    for (const RankReport& rank : ran) routed.push_back(rank.routed);
    const auto even = RehearseStrategy(c.strategy, MakeModel, SmallLlamaConfig(), assignments);
    const auto rehearsed = RehearseStrategy(c.strategy, MakeModel, SmallLlamaConfig(), assignments,
                                            {.routed = routed});
    ASSERT_EQ(rehearsed.size(), ran.size());
    for (size_t rank = 0; rank < ran.size(); ++rank) {
      for (int i = 0; i < kMemoryClasses; ++i) {
        const auto memory_class = static_cast<MemoryClass>(i);
        SCOPED_TRACE(absl::StrCat(Name(memory_class), " of rank ", rank));
        const int64_t measured = ran[rank].memory.peak(memory_class);
        EXPECT_EQ(rehearsed[rank].memory.peak(memory_class), measured);
        uneven += even[rank].memory.peak(memory_class) != measured ? 1 : 0;
      }
    }
  }
  EXPECT_GT(uneven, 0);
}

// A rank that repeats another's work has that one's state besides, whatever its own is.
TEST(RehearsalOfGuardsTest, RanksThatRepeatEachOthersWork) {
  for (const Case& c :
       {Case{DdpStrategy(), {"mesh.dp=2"}}, Case{FsdpStrategy(), {"mesh.dp=3"}},
        Case{GPipeStrategy(), {"mesh.pp=2"}}, Case{TpStrategy(), {"mesh.tp=2", "mesh.dp=2"}}}) {
    for (const char* every : {"guard.every=1", "guard.every=2"}) {
      ExpectRehearsed({c.strategy, With(c.assignments, {every, "guard.repeat_on=\"other_rank\""})},
                      SmallGptConfig());
    }
  }
}

// Loads that are even are those that a rehearsal takes.
TEST(RehearsalOfExpertsTest, OfDividedExperts) {
  const Assignments experts = {"model.experts.count=4", "model.experts.top_k=4"};
  for (const Assignments& mesh :
       {Assignments{"mesh.dp=4", "mesh.ep=2"},
        Assignments{"mesh.dp=2", "mesh.cp=2", "mesh.ep=4", "recompute.operations=[\"mlp\"]"}}) {
    ExpectRehearsed({EpStrategy(), With(experts, mesh)}, SmallLlamaConfig());
  }
}

TEST(RehearsalOfAdaptersTest, KeepsLess) {
  const Assignments adapters = {"lora.rank=2", "lora.layers=[\"*attention*\"]"};
  ExpectRehearsed({LoraStrategy(), adapters}, SmallGptConfig());
}

// The books of parameters by rank, where blocks are divided by time.
std::vector<int64_t> ParametersByTime(const std::vector<BlockProfile>& profiles) {
  std::vector<int64_t> bytes;
  for (const Rehearsed& rank :
       RehearseStrategy(LayerwiseStrategy(), MakeModel, SmallGptConfig(),
                        {"mesh.pp=2", "pipeline.balance=\"time\""}, {.profiles = profiles})) {
    bytes.push_back(rank.memory.peak(MemoryClass::kParameters));
  }
  return bytes;
}

TEST(RehearsalTest, DividesBlocksByTheProfilesThatItIsTold) {
  const auto given = [](const std::string& balance) {
    std::vector<int64_t> bytes;
    for (const Rehearsed& rank :
         RehearseStrategy(LayerwiseStrategy(), MakeModel, SmallGptConfig(),
                          {"mesh.pp=2", absl::StrCat("pipeline.balance=", balance)})) {
      bytes.push_back(rank.memory.peak(MemoryClass::kParameters));
    }
    return bytes;
  };
  EXPECT_EQ(ParametersByTime({{.nanos = 9}, {.nanos = 1}, {.nanos = 1}, {.nanos = 1}}),
            given("[1, 3]"));
  EXPECT_EQ(ParametersByTime({{.nanos = 1}, {.nanos = 1}, {.nanos = 1}, {.nanos = 9}}),
            given("[3, 1]"));
  // Told nothing, it measures.
  EXPECT_EQ(ParametersByTime({}).size(), 2u);
}

// A rehearsal touches nothing and computes nothing: of a model that no machine could hold twice.
TEST(RehearsalTest, OfMoreThanThereIs) {
  const auto ranks =
      RehearseStrategy(DdpStrategy(), MakeModel, SmallGptConfig(),
                       {"mesh.dp=4", "model.width=8192", "model.heads=64", "model.layers=12"});
  ASSERT_EQ(ranks.size(), 4u);
  // 12 width^2 a layer; what the embeddings add is below a percent.
  EXPECT_NEAR(static_cast<double>(ranks[3].memory.peak(MemoryClass::kParameters)),
              4.0 * 12 * 12 * 8192 * 8192, 0.01 * 4.0 * 12 * 12 * 8192 * 8192);
}

}  // namespace
}  // namespace lockstep
