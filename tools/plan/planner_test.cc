#include "tools/plan/planner.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/base/file.h"
#include "core/run/leg/training_run.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/mesh/mesh.h"
#include "tools/plan/search.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

constexpr char kWorkload[] = R"(name = "small"
[batch]
size = 8
[model]
kind = "transformer"
layers = 2
heads = 2
width = 16
dropout = 0.0
[data]
kind = "markov"
context = 8
validation_samples = 8
[optimizer]
kind = "adamw"
[train]
steps = 8
[schedule]
learning_rate = 0.01
)";

// The same with a mixture of experts in each layer.
std::string WorkloadWithExperts() {
  return absl::StrReplaceAll(kWorkload,
                             {{"kind = \"transformer\"", "kind = \"llama\""},
                              {"dropout = 0.0", "mlp_width = 64\nexperts = {count = 4}"}});
}

// Four devices in two nodes. Numbers are small, so that each resource counts.
Cluster SmallCluster() {
  Cluster cluster;
  cluster.name = "small";
  cluster.device.memory = 1e9;
  cluster.device.bandwidth = 1e9;
  cluster.device.peak = {{DType::kF32, 1e10}};
  cluster.device.launch = 1e-6;
  cluster.node.devices = 2;
  cluster.node.link_bandwidth = 1e8;
  cluster.node.link_latency = 1e-6;
  cluster.network.nodes = 2;
  cluster.network.bandwidth = 1e7;
  cluster.network.latency = 1e-5;
  return cluster;
}

class PlannerTest : public testing::Test {
 protected:
  static Planner::Options Options() {
    const std::string file = testing::TempDir() + "/planner.toml";
    EXPECT_TRUE(WriteFileAtomically(file, kWorkload).ok());
    Planner::Options options;
    options.workload.configs = {file};
    options.make_model = MakeModel;
    options.cluster = SmallCluster();
    options.dialect = ReadDialect("foresight/dialects/lockstep.toml");
    return options;
  }
  static Dialect ReadDialect(const std::string& path) {
    auto dialect = Dialect::Read(path);
    EXPECT_TRUE(dialect.ok()) << dialect.status();
    return *std::move(dialect);
  }
  // A framework whose kernels take the time of what they read and write.
  static Dialect PlainDialect(const std::string& keys) {
    const std::string file = testing::TempDir() + "/plain.toml";
    EXPECT_TRUE(WriteFileAtomically(file, absl::StrCat("name = 'plain'\n", keys,
                                                       "\n[kernels.default]\n"
                                                       "does = ['pass(all)']\n"))
                    .ok());
    return ReadDialect(file);
  }
  static Planner Create(const Planner::Options& options = Options()) {
    auto planner = Planner::Create(options);
    EXPECT_TRUE(planner.ok()) << planner.status();
    return *std::move(planner);
  }
  static Candidate On(int pp, int dp, int tp) {
    Candidate candidate;
    candidate.mesh.pp = pp;
    candidate.mesh.dp = dp;
    candidate.mesh.tp = tp;
    return candidate;
  }
};

TEST_F(PlannerTest, CountsTokensAndOperations) {
  const Forecast run = Create().Plan(On(1, 2, 1));
  ASSERT_TRUE(run.refused.ok()) << run.refused;
  // 64 tokens. A layer's products have 12 x 16^2 weights, and attention half of 8 x 8 scores and as
  // many products with values; the head has 16 weights for each of the 64 words.
  const double layer = 64 * (12.0 * 16 * 16) + 8 * 2.0 * 16 * (8 * 8) / 2;
  const double head = 64 * 16.0 * 64;
  EXPECT_NEAR(run.flops, 6 * (2 * layer + head), 0.15 * run.flops);
  EXPECT_DOUBLE_EQ(run.units_per_second, 64 / run.seconds);
  EXPECT_DOUBLE_EQ(run.mfu, run.flops / run.seconds / 2 / 1e10);

  Planner::Options twice = Options();
  twice.batch_factor = 2;
  const Forecast doubled = Create(twice).Plan(On(1, 2, 1));
  EXPECT_DOUBLE_EQ(doubled.flops, 2 * run.flops);
  EXPECT_GT(doubled.seconds, run.seconds);
}

TEST_F(PlannerTest, SaysWhatFits) {
  const Forecast run = Create().Plan(On(1, 1, 1));
  EXPECT_TRUE(run.fits);
  double sum = 0;
  for (const auto& [name, bytes] : run.memory.classes) sum += bytes;
  EXPECT_LE(run.memory.total, sum);
  EXPECT_GT(run.memory.total, sum / 2);
  for (const double room : {run.memory.total, run.memory.total - 1}) {
    Planner::Options options = Options();
    options.memory = room;
    EXPECT_EQ(Create(options).Plan(On(1, 1, 1)).fits, room == run.memory.total);
  }
}

TEST_F(PlannerTest, LeavesRefusalsToTheEngine) {
  const Planner planner = Create();
  EXPECT_THAT(std::string(planner.Plan(On(8, 1, 1)).refused.message()),
              HasSubstr("but the model has 4 blocks"));
  EXPECT_THAT(std::string(planner.Plan(On(1, 3, 1)).refused.message()),
              HasSubstr("do not divide into 3 shards"));
  EXPECT_THAT(std::string(planner.Explain(On(8, 1, 1)).status().message()),
              HasSubstr("but the model has 4 blocks"));
  EXPECT_THAT(std::string(planner.Limits(5).status().message()), HasSubstr("has 4 devices, not 5"));

  const auto limits = planner.Limits(4);
  ASSERT_TRUE(limits.ok()) << limits.status();
  EXPECT_EQ(limits->tensor_parallel, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(limits->sequence_parallel, (std::vector<int64_t>{2}));
  EXPECT_EQ(limits->blocks, 4);
  EXPECT_EQ(limits->batch, 8);
  EXPECT_TRUE(limits->has_selective);
}

// Per parameter, Megatron-LM's distributed optimizer keeps 6 + 12 / d bytes on each of d ranks
// (docs of github.com/NVIDIA/Megatron-LM, "Distributed Optimizer"); whole gradients and values are
// divided by ZeRO-2 and 3.
TEST_F(PlannerTest, RanksDivideTheStateOfAnotherFramework) {
  Planner::Options options = Options();
  options.dialect = PlainDialect("parameter_bytes = {value = 2, gradient = 4, optimizer = 12}");
  const Planner planner = Create(options);
  const auto state = [&](const std::string& shard) {
    Candidate candidate = On(1, 4, 1);
    candidate.shard = shard;
    const Forecast run = planner.Plan(candidate);
    EXPECT_TRUE(run.refused.ok()) << run.refused;
    return run.memory.classes.empty() ? 0 : run.memory.classes.front().second;
  };
  const double part = state("parameters") / 18;
  EXPECT_NEAR(4 * part, state("none") / 18, 0.02 * 4 * part);  // parts have equal sizes
  EXPECT_DOUBLE_EQ(state("optimizer"), (6 + 12.0 / 4) * 4 * part);
  EXPECT_DOUBLE_EQ(state("gradients"), (2 + 16.0 / 4) * 4 * part);
}

TEST_F(PlannerTest, RefusesNothingThatAMeshHasNoUseFor) {
  Planner::Options options = Options();
  options.dialect =
      PlainDialect("options = ['data_parallel.shard=parameters', 'pipeline.schedule=gpipe']");
  const Planner planner = Create(options);
  const auto limits = planner.Limits(4);
  ASSERT_TRUE(limits.ok()) << limits.status();
  std::vector<std::string> names;
  for (const Candidate& candidate : FirstCandidates(*limits)) {
    if (planner.Plan(candidate).refused.ok()) names.push_back(candidate.ToString());
  }
  EXPECT_THAT(names, IsSupersetOf({"pp=1,dp=4,tp=1,b=1 fsdp", "pp=4,dp=1,tp=1,b=1 gpipe",
                                   "pp=2,dp=2,tp=1,b=1 gpipe, fsdp"}));
}

TEST_F(PlannerTest, PlansWhatTheFrameworkHas) {
  Planner::Options options = Options();
  const std::vector<std::string> schedules = {"gpipe", "1f1b", "interleaved_1f1b"};
  for (const bool is_later : {false, true}) {
    options.dialect = ReadDialect(is_later ? "foresight/dialects/megatron_2022.toml"
                                           : "foresight/dialects/megatron_2021.toml");
    const Planner planner = Create(options);
    const auto limits = planner.Limits(4);
    ASSERT_TRUE(limits.ok()) << limits.status();
    EXPECT_EQ(limits->schedules, schedules);
    EXPECT_EQ(limits->context_parallel, std::vector<int64_t>{1});
    EXPECT_EQ(limits->has_selective, is_later);
    EXPECT_EQ(limits->sequence_parallel.size(), is_later ? 1 : 0);
    std::vector<std::string> names;
    for (const Forecast& run : Search(planner, *limits, [](int64_t, int64_t) {})) {
      if (run.refused.ok()) names.push_back(run.candidate.ToString());
    }
    EXPECT_THAT(names, Contains(is_later ? "pp=1,dp=4,tp=1,b=1 zero1" : "pp=1,dp=4,tp=1,b=1 ddp"));
    EXPECT_THAT(
        names, Each(Not(ContainsRegex(is_later ? "replicas|zero2|fsdp|zb|dualpipe|cp="
                                               : "replicas|zero|fsdp|zb|dualpipe|cp=|sp|select"))));
  }

  Candidate candidate = On(1, 4, 1);
  candidate.shard = "parameters";
  EXPECT_EQ(Create(options).Plan(candidate).refused.message(),
            "megatron_2022 has no data_parallel.shard=parameters; it has none, optimizer");
  candidate = On(1, 2, 1);
  candidate.mesh.replicas = 2;
  EXPECT_EQ(Create(options).Plan(candidate).refused.message(),
            "megatron_2022 has no mesh.replicas=2; it has 1");
}

// An option that --set fixes is the same in all runs: the engine gets it, and the search does not
// look at others.
TEST_F(PlannerTest, KeepsWhatIsAssigned) {
  Planner::Options options = Options();
  options.workload.assignments = {"recompute.granularity=full", "pipeline.schedule='gpipe'",
                                  "data_parallel.shard=parameters"};
  const Planner planner = Create(options);
  const auto limits = planner.Limits(4);
  ASSERT_TRUE(limits.ok()) << limits.status();
  const std::vector<Forecast> runs = Search(planner, *limits, [](int64_t, int64_t) {});
  std::vector<std::string> names;
  for (const Forecast& run : runs) {
    if (run.refused.ok()) names.push_back(run.candidate.ToString());
  }
  EXPECT_THAT(
      names,
      IsSupersetOf({"pp=1,dp=4,tp=1,b=1 fsdp, full", "pp=1,dp=2,tp=2,b=1 fsdp, sp, full",
                    "pp=4,dp=1,tp=1,b=1 gpipe, full", "pp=2,dp=2,tp=1,b=1 gpipe, fsdp, full"}));
  EXPECT_THAT(names,
              Each(AllOf(HasSubstr(", full"), Not(ContainsRegex("zero|ddp|1f1b|zb_|dual")))));

  options.workload.assignments = {"pipeline.schedule=3"};
  EXPECT_EQ(Planner::Create(options).status().message(),
            "--set: pipeline.schedule is the number 3, expected one of \"layerwise\", \"gpipe\", "
            "\"1f1b\", \"interleaved_1f1b\", \"zb_h1\", \"zb_v\", \"dualpipe_v\"");
  options.workload.assignments = {"data_parallel.shard=zero1"};
  EXPECT_EQ(Planner::Create(options).status().message(),
            "--set: data_parallel.shard is \"zero1\"; did you mean \"optimizer\"? Known are "
            "\"none\", \"optimizer\", \"gradients\", \"parameters\"");
  options.workload.assignments = {"pipeline.actions='x'"};
  EXPECT_EQ(Planner::Create(options).status().message(),
            "--set pipeline.actions: a plan has the schedules of pipeline.schedule only");
  options.workload.assignments = {"pipeline.stages_per_rank=4294967298"};
  EXPECT_EQ(
      Planner::Create(options).status().message(),
      "--set: pipeline.stages_per_rank is 4294967298: it must be at least 1 and at most 10000");
  options.workload.assignments = {"tensor_parallel.sequence_parallel=maybe"};
  EXPECT_EQ(Planner::Create(options).status().message(),
            "--set: tensor_parallel.sequence_parallel is the string \"maybe\", expected true or "
            "false, such as sequence_parallel = true");
  for (const char* key : {"mesh.tp", "cut.micro_batches"}) {
    options.workload.assignments = {absl::StrCat(key, "=2")};
    EXPECT_EQ(Planner::Create(options).status().message(),
              absl::StrCat("--set ", key, ": a plan chooses this",
                           key[0] == 'm' ? "; --mesh plans one mesh alone" : ""));
  }

  options.workload.assignments = {"pipeline.schedule=layerwise"};
  std::vector<std::string> layerwise;
  for (const Forecast& run :
       Search(Create(options), *Create(options).Limits(4), [](int64_t, int64_t) {})) {
    if (run.refused.ok() && run.candidate.mesh.pp > 1)
      layerwise.push_back(run.candidate.ToString());
  }
  EXPECT_THAT(layerwise, Each(HasSubstr(" layerwise")));
  EXPECT_THAT(layerwise, Contains("pp=2,dp=2,tp=1,b=2 layerwise, zero1"));
}

TEST_F(PlannerTest, ExplainsWhereTimeAndMemoryGo) {
  const Planner planner = Create();
  Candidate candidate = On(2, 2, 1);
  candidate.shard = "optimizer";
  const Forecast planned = planner.Plan(candidate);
  const auto explained = planner.Explain(candidate);
  ASSERT_TRUE(explained.ok()) << explained.status();
  const Forecast& run = explained->forecast;
  EXPECT_EQ(run.seconds, planned.seconds);
  for (const RankEstimate& rank : run.estimate.ranks) {
    double now = 0;
    for (const Interval& interval : rank.timeline) {
      EXPECT_EQ(interval.begin, now);
      now = interval.end;
    }
    EXPECT_LE(now, run.seconds);
    EXPECT_TRUE(std::ranges::is_sorted(rank.stretch_begins));
  }
  // Half the time at most is saved by a resource that is twice as good.
  for (const FasterResource& resource : explained->faster) {
    EXPECT_LE(resource.seconds, run.seconds * (1 + 1e-9)) << resource.name;
    EXPECT_GE(resource.seconds, run.seconds / 2) << resource.name;
  }
  EXPECT_EQ(explained->faster.front().name, "bandwidth between nodes");
  double most = 0;
  for (const auto& sample : explained->memory.samples) {
    ASSERT_EQ(sample.bytes.size(), explained->memory.classes.size());
    double total = 0;
    for (const double bytes : sample.bytes) total += bytes;
    most = std::max(most, total);
  }
  EXPECT_GE(most, run.memory.total * 0.9);
}

// Where the host is slower than the device, it limits the step, whichever file says how slow it is.
TEST_F(PlannerTest, ExplainsWhatTheHostTakes) {
  Planner::Options options = Options();
  options.dialect = PlainDialect("fitted = {host_forward = 1.0, host_backward = 1.0}");
  const auto explained = Create(options).Explain(On(1, 1, 1));
  ASSERT_TRUE(explained.ok()) << explained.status();
  EXPECT_EQ(explained->faster.front().name, "overhead of a kernel");
  EXPECT_NEAR(explained->faster.front().seconds / explained->forecast.seconds, 0.5, 0.01);
}

TEST_F(PlannerTest, WritesAConfigurationThatRuns) {
  const Planner planner = Create();
  Candidate candidate = On(2, 2, 1);
  candidate.micro_batch = 2;
  candidate.schedule = "zb_h1";
  candidate.shard = "gradients";
  const auto config = planner.ConfigurationOf(candidate);
  ASSERT_TRUE(config.ok()) << config.status();
  CommandLine command_line;
  command_line.configs = {testing::TempDir() + "/written.toml"};
  ASSERT_TRUE(WriteFileAtomically(command_line.configs[0], *config).ok());
  const auto run = CheckRun(command_line, MeshStrategy(), MakeModel);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->settings.mesh, candidate.mesh);
  EXPECT_EQ(run->settings.cut.micro_batches, 2);
  EXPECT_EQ(run->settings.cut.shards, 2);
}

TEST_F(PlannerTest, SearchFindsTheBestOfAll) {
  const Planner planner = Create();
  const auto limits = planner.Limits(4);
  ASSERT_TRUE(limits.ok()) << limits.status();
  int64_t told = 0;
  const std::vector<Forecast> runs =
      Search(planner, *limits, [&](int64_t done, int64_t) { told = done; });
  EXPECT_EQ(told, std::ssize(runs));
  EXPECT_TRUE(std::ranges::is_sorted(runs, IsBetter));
  std::set<std::string> names;
  for (const Forecast& run : runs) {
    EXPECT_TRUE(names.insert(run.candidate.ToString()).second) << run.candidate.ToString();
  }
  // All meshes are there, those that the engine refuses too.
  for (const Candidate& candidate : FirstCandidates(*limits)) {
    EXPECT_THAT(runs, Contains(testing::Truly([&](const Forecast& run) {
                  return run.candidate.mesh == candidate.mesh;
                })));
  }
  // No change of one option makes the best better.
  for (const Forecast& run : PlanCandidates(planner, Variants(runs.front().candidate, *limits),
                                            [](int64_t, int64_t) {})) {
    if (!run.refused.ok()) continue;
    EXPECT_GE(run.seconds, runs.front().seconds) << run.candidate.ToString();
  }
}

// Four experts on four ranks, with even loads.
TEST_F(PlannerTest, KnowsRanksThatDivideExperts) {
  Planner::Options options = Options();
  const std::string file = testing::TempDir() + "/experts.toml";
  ASSERT_TRUE(WriteFileAtomically(file, WorkloadWithExperts()).ok());
  options.workload.configs = {file};
  const Planner planner = Create(options);
  const auto limits = planner.Limits(4);
  ASSERT_TRUE(limits.ok()) << limits.status();
  EXPECT_EQ(limits->expert_parallel, (std::vector<int64_t>{1, 2, 4}));
  EXPECT_EQ(limits->context_parallel, (std::vector<int64_t>{1, 2, 4}));
  Candidate whole = On(1, 4, 1), divided = whole;
  divided.mesh.ep = 4;
  const Forecast with_all = planner.Plan(whole), with_some = planner.Plan(divided);
  ASSERT_TRUE(with_all.refused.ok()) << with_all.refused;
  ASSERT_TRUE(with_some.refused.ok()) << with_some.refused;
  EXPECT_LT(with_some.memory.total, with_all.memory.total);
  EXPECT_NE(with_some.seconds, with_all.seconds);
  // Another framework's bytes are known per parameter, and there are two numbers of dividers.
  options.dialect = PlainDialect("parameter_bytes = {value = 2}");
  EXPECT_TRUE(Create(options).Plan(divided).refused.ok());
  divided.shard = "optimizer";
  EXPECT_THAT(std::string(Create(options).Plan(divided).refused.message()),
              HasSubstr("use data_parallel.shard=none"));
  const std::vector<Forecast> runs = Search(planner, *limits, [](int64_t, int64_t) {});
  const auto has = [&runs](auto&& is) {
    return std::any_of(runs.begin(), runs.end(),
                       [&](const Forecast& run) { return run.refused.ok() && is(run.candidate); });
  };
  EXPECT_TRUE(has([](const Candidate& c) { return c.mesh.ep > 1; }));
  EXPECT_TRUE(has([](const Candidate& c) { return c.mesh.cp > 1; }));
}

// With less memory than any of the first candidates needs, it recomputes or divides more.
TEST_F(PlannerTest, SearchSavesMemoryWhereItMust) {
  const auto limits = Create().Limits(2);
  ASSERT_TRUE(limits.ok()) << limits.status();
  Planner::Options options = Options();
  options.memory = options.cluster.device.memory;
  for (const Forecast& run :
       PlanCandidates(Create(), FirstCandidates(*limits), [](int64_t, int64_t) {})) {
    if (run.refused.ok()) options.memory = std::min(options.memory, run.memory.total - 1);
  }
  const std::vector<Forecast> runs = Search(Create(options), *limits, [](int64_t, int64_t) {});
  EXPECT_TRUE(runs.front().fits);
  EXPECT_LE(runs.front().memory.total, options.memory);
  EXPECT_THAT(runs, Contains(testing::Truly([](const Forecast& run) { return !run.fits; })));
}

// What a search passes over does not fit: of each mesh it has the first that does, tried one by
// one.
TEST_F(PlannerTest, SearchPassesOverOnlyWhatDoesNotFit) {
  Planner::Options options = Options();
  options.workload.assignments = {"model.width=256", "model.layers=8", "data.context=256"};
  const Planner with_room = Create(options);
  const auto limits = with_room.Limits(4);
  ASSERT_TRUE(limits.ok()) << limits.status();
  struct Tried {
    Candidate candidate;
    double bytes = 0;
  };
  std::vector<std::vector<Tried>> meshes;
  double most = 0;
  for (const Candidate& candidate : FirstCandidates(*limits)) {
    if (candidate.micro_batch > 1) continue;
    std::vector<Candidate> all = SmallerCandidates(candidate, *limits);
    all.insert(all.begin(), candidate);
    meshes.emplace_back();
    for (const Candidate& each : all) {
      const Forecast run = with_room.Plan(each);
      if (!run.refused.ok()) continue;
      meshes.back().push_back({each, run.memory.total});
      most = std::max(most, run.memory.total);
    }
  }
  std::set<std::string> found;  // ways to save memory
  for (int part = 5; part < 16; ++part) {
    options.memory = part / 16.0 * most;
    const std::vector<Forecast> runs = Search(Create(options), *limits, [](int64_t, int64_t) {});
    for (const std::vector<Tried>& mesh : meshes) {
      const auto first = std::ranges::find_if(
          mesh, [&](const Tried& tried) { return tried.bytes <= options.memory; });
      if (first == mesh.end()) continue;
      const Candidate& fits = first->candidate;
      EXPECT_THAT(
          runs,
          Contains(testing::Truly([&](const Forecast& run) { return run.candidate == fits; })))
          << fits.ToString() << " in " << part << " sixteenths";
      const bool has_cp = fits.mesh.cp > mesh.front().candidate.mesh.cp;
      found.insert(absl::StrCat(has_cp ? "cp, " : "", fits.shard, ", ", fits.recompute));
    }
  }
  EXPECT_THAT(found, testing::IsSupersetOf({"none, full", "optimizer, full", "parameters, full",
                                            "cp, optimizer, full", "cp, parameters, full"}));
}

}  // namespace
}  // namespace lockstep
