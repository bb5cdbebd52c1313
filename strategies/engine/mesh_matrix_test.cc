// The engine on generated meshes: every way to lay up to 8 ranks along pp, replicas, dp and tp,
// with every choice of what data-parallel ranks divide, while schedules, recomputation, options,
// sequence parallelism and numbers of shards a rank take turns; and some of those with ranks along
// cp, and of the models with experts some with ranks along ep.

#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/engine/preset.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

constexpr int kSamples = 16;  // of a batch

// What is trained.
struct Workload {
  std::string name;
  SmallModel model;
  Assignments assignments;
  size_t one_of = 2;          // of so many meshes one is tried
  size_t one_of_context = 0;  // of those with ranks along cp; 0: as of the others
  bool has_experts = false;
  bool has_tokens() const { return model == SmallModel::kGpt || model == SmallModel::kLlama; }
};
void PrintTo(const Workload& workload, std::ostream* out) { *out << workload.name; }

std::vector<Workload> Workloads() {
  const Assignments gpt = {"model.heads=4", "cut.tokens=4"},
                    llama = {"model.heads=8", "model.key_heads=4", "cut.tokens=4"};
  // Images cost the most, and what lasts from step to step shows in the second one.
  const Assignments images = {"model.width=12", "train.steps=2"};
  const Assignments adapters = {R"(lora.layers=["*"])", "lora.rank=2", "lora.dropout=0.1"};
  std::vector<Workload> workloads;
  for (const std::string name : {"Fp32", "Bf16"}) {
    const Assignments precision = {absl::StrCat("precision.compute=", absl::AsciiStrToLower(name))};
    const auto add = [&](const char* what, SmallModel model, const Assignments& assignments,
                         size_t one_of = 2, size_t one_of_context = 0) {
      workloads.push_back(
          {absl::StrCat(what, name), model, With(assignments, precision), one_of, one_of_context});
    };
    add("Gpt", SmallModel::kGpt, gpt, name == "Fp32" ? 1 : 2);
    add("Llama", SmallModel::kLlama, llama, 3);
    // Logits in two runs of a token leaf, which the reference makes all at once. Few heads: they
    // are most of the time of samples so long.
    add("LlamaLossInRuns", SmallModel::kLlama,
        With(llama, {"model.heads=4", "loss.rows=128", "data.context=1024", "train.steps=2",
                     "validation.batches=2"}),
        13);
    add("LlamaDocuments", SmallModel::kLlama, With(llama, {"data.document_tokens=5"}), 7,
        /*one_of_context=*/1);
    add("GptDocuments", SmallModel::kGpt, With(gpt, {"data.document_tokens=5"}), 11);
    add("LlamaAdapters", SmallModel::kLlama, With(llama, adapters), 7);
    add("Experts", SmallModel::kLlama,
        With(llama, {"model.experts.count=4", "model.experts.shared=1",
                     "model.experts.scores=sigmoid", "model.experts.bias_rate=0.02"}),
        3);
    workloads.back().has_experts = true;
    // Routers are frozen; attention, experts and the shared expert have adapters. Those of experts
    // have no dropout.
    add("ExpertsAdapters", SmallModel::kLlama,
        With(With(llama, adapters),
             {"lora.dropout=0", "model.experts.count=4", "model.experts.shared=1"}),
        5);
    workloads.back().has_experts = true;
    add("ResNet", SmallModel::kResNet, images);
    // Micro-batches of uneven sizes, whose statistics ranks gather one by one.
    add("ResNetNotDeferred", SmallModel::kResNet,
        With(images, {"train.deferred_batch_norm=false", "batch.size=48"}), 7);
    add("UNet", SmallModel::kUNet, images);
    add("Adapters", SmallModel::kGpt, With(gpt, adapters));
  }
  return workloads;
}

StrategyDefinition Engine() { return EnginePreset("engine", {}); }

struct MeshCase {
  int pp, replicas, dp, tp;
  std::string shard;
  int shards_of_rank = 1;
  bool splits_sequence = false;
  Assignments options = {};
  int cp = 1;
  int ep = 1;

  int data_ranks() const { return replicas * dp; }
  int shards() const { return data_ranks() * shards_of_rank; }
  // How many a shard has. A rank has 4 in a step, whatever its shards are; but 4 in a shard where a
  // schedule may run once for each.
  int micro_batches() const { return pp > 1 && shard != "none" ? 4 : 4 / shards_of_rank; }
  Assignments assignments() const {
    return With(
        {absl::StrCat("mesh.pp=", pp), absl::StrCat("mesh.replicas=", replicas),
         absl::StrCat("mesh.dp=", dp), absl::StrCat("mesh.cp=", cp), absl::StrCat("mesh.ep=", ep),
         absl::StrCat("mesh.tp=", tp), absl::StrCat("data_parallel.shard=", shard)},
        options);
  }
};

// Options take turns by the case's number.
Assignments OptionsOf(size_t number, const MeshCase& mesh) {
  const std::vector<Assignments> schedules = {
      {"pipeline.schedule=1f1b"},
      {"pipeline.schedule=gpipe"},
      {"pipeline.schedule=interleaved_1f1b", "pipeline.stages_per_rank=2"},
      {"pipeline.schedule=zb_h1"},
      {"pipeline.schedule=zb_v"},
      {"pipeline.schedule=dualpipe_v"},
      {"pipeline.schedule=layerwise"}};
  const std::vector<std::string> recomputed = {"never", "except_last", "always"};
  Assignments options = {absl::StrCat("recompute.micro_batches=", recomputed[number % 3])};
  bool halves = false;
  if (mesh.pp > 1) {
    options = With(options, schedules[number % schedules.size()]);
    halves = number % schedules.size() >= 3 && number % schedules.size() <= 5;
  }
  if (mesh.shard == "parameters") {
    const bool once = halves || number % 2 == 0;
    options.push_back(absl::StrCat("data_parallel.unshard=", once ? "step" : "micro_batch"));
    if (!once)
      options.push_back(absl::StrCat("data_parallel.reshard=", number % 4 == 1 ? "true" : "false"));
  } else if (mesh.shard == "none" && number % 2 == 0) {
    options.push_back("data_parallel.bucket_bytes=10000");
  }
  return options;
}

std::vector<MeshCase> Meshes() {
  std::vector<MeshCase> meshes;
  for (const int pp : {1, 2}) {
    for (const int replicas : {1, 2}) {
      for (const int dp : {1, 2, 4}) {
        for (const int tp : {1, 2, 4}) {
          if (pp * replicas * dp * tp > 8) continue;
          for (const char* shard : {"none", "optimizer", "gradients", "parameters"}) {
            MeshCase mesh = {pp, replicas, dp, tp, shard};
            mesh.shards_of_rank = 1 << meshes.size() % 3;
            if (mesh.shards() * mesh.micro_batches() > kSamples) mesh.shards_of_rank = 1;
            mesh.splits_sequence = tp > 1 && meshes.size() % 4 < 3;
            mesh.options = OptionsOf(meshes.size() + meshes.size() / 3, mesh);
            meshes.push_back(mesh);
          }
        }
      }
    }
  }
  return meshes;
}

// Meshes with ranks along cp, for models with tokens.
std::vector<MeshCase> ContextMeshes() {
  std::vector<MeshCase> meshes = {
      {.pp = 1, .replicas = 1, .dp = 1, .tp = 1, .shard = "none", .cp = 2},
      {.pp = 1, .replicas = 1, .dp = 1, .tp = 1, .shard = "none", .shards_of_rank = 2, .cp = 4},
      {.pp = 1,
       .replicas = 1,
       .dp = 2,
       .tp = 1,
       .shard = "parameters",
       .shards_of_rank = 2,
       .cp = 2},
      {.pp = 1,
       .replicas = 1,
       .dp = 2,
       .tp = 2,
       .shard = "optimizer",
       .shards_of_rank = 2,
       .cp = 2},
      {.pp = 2, .replicas = 1, .dp = 1, .tp = 2, .shard = "parameters", .cp = 2},
      {.pp = 2, .replicas = 1, .dp = 2, .tp = 1, .shard = "none", .cp = 2},
      {.pp = 1, .replicas = 2, .dp = 1, .tp = 2, .shard = "gradients", .cp = 2},
      {.pp = 1, .replicas = 1, .dp = 2, .tp = 1, .shard = "gradients", .cp = 4},
      {.pp = 1, .replicas = 1, .dp = 2, .tp = 1, .shard = "optimizer", .cp = 2},
  };
  for (size_t i = 0; i < meshes.size(); ++i) {
    MeshCase& mesh = meshes[i];
    mesh.splits_sequence = mesh.tp > 1 && mesh.pp == 1;
    mesh.options = OptionsOf(i + 1, mesh);
    if (i % 2 == 0) mesh.options.push_back("recompute.operations=['attention']");
    if (i % 3 == 0) mesh.options.push_back("recompute.blocks=['blocks.1']");
    const std::vector<std::string> ways = {"gather", "ring", "ulysses"};
    mesh.options.push_back(absl::StrCat("context_parallel.attention=", ways[i % ways.size()]));
  }
  return meshes;
}

// Meshes with ranks along ep, for models with experts: groups inside cp, all of it, and several
// ranks along dp; with shards that a rank has consecutively or in strides.
std::vector<MeshCase> ExpertMeshes() {
  const auto mesh = [](int dp, int cp, int ep, const char* shard, int shards_of_rank = 1) {
    return MeshCase{.pp = 1,
                    .replicas = 1,
                    .dp = dp,
                    .tp = 1,
                    .shard = shard,
                    .shards_of_rank = shards_of_rank,
                    .cp = cp,
                    .ep = ep};
  };
  std::vector<MeshCase> meshes = {
      mesh(2, 1, 2, "none"),          mesh(4, 1, 2, "none", 2),       mesh(4, 1, 4, "optimizer", 2),
      mesh(2, 1, 2, "gradients", 2),  mesh(4, 1, 2, "parameters", 2), mesh(1, 2, 2, "none", 2),
      mesh(1, 4, 2, "none", 2),       mesh(2, 4, 2, "optimizer", 2),  mesh(2, 2, 4, "none", 2),
      mesh(2, 2, 4, "parameters", 2), mesh(2, 4, 2, "parameters"),    mesh(2, 2, 2, "optimizer"),
  };
  meshes.push_back(mesh(2, 1, 2, "none", 2));
  meshes.back().tp = 2;
  meshes.push_back(mesh(2, 1, 2, "parameters"));
  meshes.back().pp = 2;
  meshes.push_back(mesh(4, 1, 4, "none", 2));
  meshes.back().pp = 2;
  meshes.push_back(mesh(2, 1, 2, "none", 2));
  meshes.back().replicas = 2;
  meshes.push_back(mesh(2, 1, 2, "gradients"));
  meshes.back().replicas = 2;
  meshes.push_back(mesh(1, 2, 2, "parameters"));
  meshes.back().pp = meshes.back().tp = 2;
  // Ranks along tp divide tokens too, with groups of experts over dp, cp and both.
  for (MeshCase split : {mesh(2, 1, 2, "none", 2), mesh(2, 1, 2, "parameters", 2),
                         mesh(1, 2, 2, "optimizer", 2), mesh(2, 2, 4, "gradients")}) {
    split.tp = 2;
    split.splits_sequence = true;
    meshes.push_back(split);
  }
  for (size_t i = 0; i < meshes.size(); ++i) {
    meshes[i].options = OptionsOf(i, meshes[i]);
    if (i % 3 == 0) meshes[i].options.push_back("recompute.operations=['mlp']");
    if (i % 4 == 0) meshes[i].options.push_back("recompute.blocks=['blocks.1']");
  }
  return meshes;
}

std::string Name(const MeshCase& mesh) {
  return absl::StrCat(mesh.shards_of_rank, " shards a rank, ",
                      absl::StrJoin(mesh.assignments(), " "));
}

class MeshMatrixTest : public ::testing::TestWithParam<Workload> {
 protected:
  // What all runs of a cut have in common.
  Assignments Cut(const MeshCase& mesh) const {
    const Assignments cut = {absl::StrCat("batch.size=", kSamples), "train.steps=4",
                             absl::StrCat("cut.shards=", mesh.shards()),
                             absl::StrCat("cut.micro_batches=", mesh.micro_batches()),
                             "cut.features=4"};
    return With(cut, GetParam().assignments);
  }
  Assignments Mesh(const MeshCase& mesh) const {
    if (!mesh.splits_sequence || !GetParam().has_tokens()) return mesh.assignments();
    return With(mesh.assignments(), {"tensor_parallel.sequence_parallel=true"});
  }

  const std::vector<RankReport>& Reference(const MeshCase& mesh) {
    std::vector<RankReport>& reports = references_[{mesh.shards(), mesh.micro_batches()}];
    if (reports.empty()) {
      reports = RunStrategy(SingleStrategy(), MakeModel, SmallConfig(GetParam().model),
                            With(Cut(mesh), {"loss.rows=0"}));
    }
    return reports;
  }

 private:
  std::map<std::pair<int, int>, std::vector<RankReport>> references_;  // by the cut
};

TEST_P(MeshMatrixTest, HasTheCurveOfSingleAndThePredictedCosts) {
  std::vector<MeshCase> meshes = Meshes();
  ASSERT_GE(meshes.size(), 80);
  if (GetParam().has_tokens()) {
    for (MeshCase& mesh : ContextMeshes()) meshes.push_back(std::move(mesh));
  }
  if (GetParam().has_experts) {
    for (MeshCase& mesh : ExpertMeshes()) meshes.push_back(std::move(mesh));
  }
  // All of them with one workload, half of them or fewer with each of the others. The four choices
  // of what data-parallel ranks divide follow each other.
  for (size_t i = 0; i < meshes.size(); ++i) {
    const MeshCase& mesh = meshes[i];
    const size_t of_context = GetParam().one_of_context;
    const size_t one_of = mesh.cp > 1 && of_context > 0 ? of_context : GetParam().one_of;
    if (mesh.ep == 1 && (i + i / 4) % one_of != 0) continue;
    SCOPED_TRACE(Name(mesh));
    const auto ranks = RunStrategy(Engine(), MakeModel, SmallConfig(GetParam().model),
                                   With(Cut(mesh), Mesh(mesh)));
    ASSERT_EQ(ranks.size(), mesh.pp * mesh.data_ranks() * mesh.cp * mesh.tp);
    ExpectSameBits(ranks, Reference(mesh));
    // Slices by four of tensors of 12 channels, or of 16 bits, are small beside the 64 bytes that
    // each tensor is rounded up to.
    if (GetParam().name == "GptFp32" || GetParam().name == "LlamaFp32" ||
        (GetParam().name == "ResNetFp32" && mesh.tp < 4) ||
        (GetParam().name == "ResNetNotDeferredFp32" && mesh.tp == 1)) {
      ExpectPredictedCosts(ranks);
    } else {
      for (const RankReport& rank : ranks) ExpectPredictedTraffic(rank);
    }
  }
}

// The loads of experts are sums over a step, whatever batch normalisations do.
TEST(ExpertsTest, LoadsAreOfStepsWhereBatchNormIsNotDeferred) {
  const Assignments experts = {"model.experts.count=4", "model.experts.bias_rate=0.02",
                               "cut.shards=2", "cut.micro_batches=2"};
  const auto deferred =
      RunStrategy(SingleStrategy(), MakeModel, SmallConfig(SmallModel::kLlama), experts);
  const auto ranks = RunStrategy(Engine(), MakeModel, SmallConfig(SmallModel::kLlama),
                                 With(experts, {"train.deferred_batch_norm=false", "mesh.dp=2"}));
  ExpectSameBits(ranks, deferred);
  ExpectPredictedCosts(ranks);
}

class MeshRefusalTest : public ::testing::TestWithParam<SmallModel> {};

TEST_P(MeshRefusalTest, WhatCannotBeCombinedIsRefused) {
  const bool is_gpt = GetParam() == SmallModel::kGpt;
  const std::vector<std::pair<Assignments, std::string>> refused = {
      {{"mesh.replicas=2", "mesh.dp=3"}, "a replica would sum 3 shards"},
      {{"mesh.dp=3", "cut.shards=4"}, "set one of mesh.dp=1, 2, 4"},
      {{"mesh.dp=2", "cut.shards=6"}, "a rank would sum 3 shards"},
      {{"mesh.dp=2", "data_parallel.shard=all"}, "known are \"none\""},
      {{"mesh.dp=4", "data_parallel.shard=parameters", "data_parallel.reshard=3"},
       "does not divide into groups"},
      {{"mesh.dp=2", "data_parallel.shard=parameters", "data_parallel.bucket_bytes=9"},
       "only with data_parallel.shard = \"none\""},
      {{"mesh.dp=2", "data_parallel.shard=gradients", "data_parallel.reshard=true"},
       "only with data_parallel.shard = \"parameters\""},
      {{"mesh.dp=2", "data_parallel.shard=parameters", "data_parallel.unshard=step",
        "data_parallel.reshard=false"},
       "use unshard = \"micro_batch\""},
      {{"mesh.pp=2", "data_parallel.shard=parameters", "pipeline.schedule=zb_h1"},
       "a schedule of whole backwards"},
      {{"mesh.pp=2", "pipeline.schedule=interleaved_1f1b", "pipeline.stages_per_rank=2",
        "cut.micro_batches=3"},
       "pipeline.schedule cannot be run"},
      {{"mesh.pp=2", "pipeline.balance=[1, 1]"}, "pipeline.balance = [1, 1]"},
      {{"mesh.pp=12"}, "blocks"},
      {{"mesh.tp=3"}, "mesh.tp is 3, but"},
      {{"mesh.dp=300"}, "do not divide into 300 shards"},
      {{"gpipe.schedule=1f1b"}, "is called pipeline.schedule now"},
      {{"mesh.tp=2", "tensor_parallel.sequence_parallel=true"},
       is_gpt ? "" : "no sequence of tokens"},
      {{"mesh.tp=2", "cut.features=6"}, "set mesh.tp=1, 3 or 6, or cut.features=2"},
      {{"mesh.cp=2"}, is_gpt ? "" : "no sequence of tokens"},
      {{"mesh.cp=4", "context_parallel.attention=ulysses"},
       is_gpt ? "attention heads, which do not divide among 4 ranks along cp" : "no sequence"},
      {{"mesh.dp=2", "mesh.cp=3", "data_parallel.shard=gradients"},
       "is a power of two: use \"none\""},
      {{"mesh.cp=2", "cut.tokens=6"}, "set mesh.cp=1, 3 or 6, or cut.tokens=2"},
      {{"mesh.cp=2", "mesh.tp=2", "tensor_parallel.sequence_parallel=true", "cut.tokens=2"},
       "mesh.cp x mesh.tp is 2 x 2: each rank along cp x tp"},
      {{"loss.rows=100"}, "must be 0 (all at once) or 128 times a power of two"},
      {{"loss.rows=384"}, "of 128 rows; use 256"},
      {{"loss.rows=128"}, is_gpt ? "" : "this model makes no logits of tokens"},
      {{"data.document_tokens=-1"}, "document_tokens"},
      {{"cut.tokens=3"}, is_gpt ? "which do not divide its 16 tokens" : "no sequence of tokens"},
  };
  for (const auto& [assignments, message] : refused) {
    if (message.empty()) continue;
    SCOPED_TRACE(absl::StrJoin(assignments, " "));
    const absl::Status status =
        FailStrategy(Engine(), MakeModel, SmallConfig(GetParam()),
                     With({"batch.size=24", "cut.micro_batches=4"}, assignments));
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
}

// A head that is recomputed makes its losses once more, and ranks along tp reduce them again.
TEST(LossInRunsTest, TheHeadMayBeRecomputed) {
  const Assignments cut = {"cut.features=2",    "cut.tokens=2",  "cut.micro_batches=2",
                           "data.context=1024", "train.steps=2", "batch.size=4"};
  const auto single = RunStrategy(SingleStrategy(), MakeModel, SmallConfig(SmallModel::kLlama),
                                  With(cut, {"mesh.dp=1"}));
  for (const char* micro_batches : {"never", "always"}) {
    const auto ranks =
        RunStrategy(Engine(), MakeModel, SmallConfig(SmallModel::kLlama),
                    With(cut, {"mesh.tp=2", "loss.rows=256", "recompute.granularity=full",
                               absl::StrCat("recompute.micro_batches=", micro_batches)}));
    ExpectSameBits(ranks, single);
    ExpectPredictedCosts(ranks);
  }
}

TEST(LlamaRefusalTest, HeadsOfKeysThatDoNotDivide) {
  const auto problem = [](const Assignments& assignments) {
    return std::string(
        FailStrategy(Engine(), MakeModel, SmallConfig(SmallModel::kLlama), assignments).message());
  };
  EXPECT_THAT(problem({"mesh.tp=4"}),
              HasSubstr("layer 'blocks.0.attention.qkv' has 2 heads of keys and values, which do "
                        "not divide among 4 ranks"));
  EXPECT_THAT(problem({"cut.features=3", "model.heads=6", "model.width=48"}),
              HasSubstr("2 heads of keys and values"));
  EXPECT_THAT(problem({"mesh.tp=2", "model.mlp_width=45"}), HasSubstr("45 hidden features"));
}

TEST(ExpertsRefusalTest, WhatDoesNotDivide) {
  const auto problem = [](const Assignments& assignments) {
    return std::string(FailStrategy(Engine(), MakeModel, SmallConfig(SmallModel::kLlama),
                                    With({"model.experts.count=4"}, assignments))
                           .message());
  };
  EXPECT_THAT(problem({"mesh.tp=2", "model.experts.width=45"}),
              HasSubstr("45 hidden features of an expert, which do not divide among 2 ranks"));
  EXPECT_THAT(problem({"model.experts.top_k=5"}), HasSubstr("there are 4 experts"));
  EXPECT_THAT(problem({"lora.layers=['*.router']"}),
              HasSubstr("no layer that can be adapted matches"));
  EXPECT_THAT(problem({"lora.layers=['*.experts.down']", "lora.dropout=0.1"}),
              AllOf(HasSubstr("adapters of experts have no dropout"),
                    HasSubstr("layer 'blocks.0.network.experts.down' with lora.dropout=0.1")));
}

// What compares the choices of a whole micro-batch: capacities and the auxiliary loss.
TEST(ExpertsTest, CapacitiesAndBalanceHaveTheBitsOfSingle) {
  const std::string config = SmallConfig(SmallModel::kLlama);
  const Assignments experts = {"model.experts.count=4",
                               "model.experts.capacity_factor=1.1",
                               "model.experts.auxiliary_loss=0.5",
                               "cut.shards=2",
                               "cut.micro_batches=2",
                               "cut.tokens=4",
                               "cut.features=2"};
  const auto single = RunStrategy(SingleStrategy(), MakeModel, config, experts);
  for (const Assignments& mesh : std::vector<Assignments>{
           {"mesh.dp=2"},
           {"mesh.tp=2"},
           {"mesh.pp=2", "mesh.dp=2"},
           {"mesh.dp=2", "data_parallel.shard=parameters"},
           {"mesh.cp=2", "recompute.operations=['mlp']"},
           {"mesh.pp=2", "mesh.cp=2", "recompute.micro_batches=always"},
           {"mesh.dp=2", "mesh.cp=2", "mesh.ep=4"},
           {"mesh.tp=2", "tensor_parallel.sequence_parallel=true"},
           {"mesh.dp=2", "mesh.tp=2", "mesh.ep=2", "tensor_parallel.sequence_parallel=true",
            "recompute.operations=['mlp']"},
           {"mesh.cp=2", "mesh.tp=2", "tensor_parallel.sequence_parallel=true"}}) {
    SCOPED_TRACE(absl::StrJoin(mesh, " "));
    const auto ranks = RunStrategy(Engine(), MakeModel, config, With(experts, mesh));
    ExpectSameBits(ranks, single);
    for (const RankReport& rank : ranks) ExpectPredictedTraffic(rank);
  }
  // Both take part.
  for (const char* without :
       {"model.experts.capacity_factor=4", "model.experts.auxiliary_loss=0"}) {
    const auto other = RunStrategy(SingleStrategy(), MakeModel, config, With(experts, {without}));
    EXPECT_NE(other[0].losses, single[0].losses) << without;
  }
}

// Memory does not depend on what goes where.
TEST(ExpertsTest, MemoryIsPredictedToTheByte) {
  for (const Assignments& mesh :
       std::vector<Assignments>{{"mesh.dp=2"},
                                {"mesh.pp=2"},
                                {"mesh.cp=2"},
                                {"mesh.tp=2", "tensor_parallel.sequence_parallel=true"},
                                {"mesh.cp=2", "mesh.tp=2", "recompute.operations=['mlp']",
                                 "tensor_parallel.sequence_parallel=true"},
                                {"mesh.dp=2", "data_parallel.shard=parameters"}}) {
    SCOPED_TRACE(absl::StrJoin(mesh, " "));
    ExpectPredictedCosts(RunStrategy(Engine(), MakeModel, SmallConfig(SmallModel::kLlama),
                                     With({"model.experts.count=4", "batch.size=16"}, mesh)));
  }
}

INSTANTIATE_TEST_SUITE_P(Workloads, MeshMatrixTest, ::testing::ValuesIn(Workloads()),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Models, MeshRefusalTest,
                         ::testing::Values(SmallModel::kGpt, SmallModel::kResNet),
                         [](const auto& test) { return Name(test.param); });

}  // namespace
}  // namespace lockstep
