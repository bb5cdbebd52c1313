#include "strategies/testing/run_strategy.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/base/file.h"
#include "core/base/parallel.h"
#include "core/base/status.h"
#include "core/comm/launch.h"
#include "core/config/command_line.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/tensor/allocator.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

enum class Start { kFresh, kResume };

// Tests name every axis that they divide; presets would divide some by default.
constexpr char kOneRank[] = "mesh = {pp = 1, replicas = 1, dp = 1, tp = 1}";

std::string TestFolder() { return ::testing::TempDir() + "/run_strategy"; }

absl::StatusOr<TrainingRun> Prepare(const StrategyDefinition& strategy,
                                    const ModelFactory& make_model, const std::string& config,
                                    const Assignments& assignments, Start start,
                                    const std::vector<StrategyDefinition>& legs = {}) {
  const std::string folder = TestFolder();
  if (start == Start::kFresh) std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  CommandLine command_line;
  for (const auto& [name, text] :
       {std::pair("one_rank.toml", std::string(kOneRank)), std::pair("workload.toml", config)}) {
    command_line.configs.push_back(absl::StrCat(folder, "/", name));
    if (auto status = WriteFileAtomically(command_line.configs.back(), text); !status.ok()) {
      return status;
    }
  }
  command_line.assignments = assignments;
  command_line.out = RunFolder();
  command_line.resume = start == Start::kResume;
  // Tests resume on meshes that decide the cut, too, where files alone are looked at.
  if (command_line.resume) command_line.allowed_changes = {"cut"};
  return PrepareRun(command_line, strategy, make_model, /*here=*/{}, legs);
}

absl::StatusOr<std::vector<RankReport>> TryStrategy(
    const StrategyDefinition& strategy, const ModelFactory& make_model, const std::string& config,
    const Assignments& assignments, Start start = Start::kFresh,
    std::shared_ptr<RankDevices> devices = {}, const std::vector<StrategyDefinition>& legs = {}) {
  auto run = Prepare(strategy, make_model, config, assignments, start, legs);
  if (!run.ok()) return run.status();
  if (devices != nullptr) run->devices = std::move(devices);
  return TrainRanks(*run);
}

// One thread a rank: what is compared must compute alike.
constexpr char kCommon[] = R"(
[train]
steps = 4
seed = 7
clip_norm = 1.0
[batch]
size = 12
[schedule]
learning_rate = 0.01
[run]
threads = 1
timeout_seconds = 30
[validation]
batches = 2
batch_size = 4
)";

// What language models are trained on, and how.
constexpr char kText[] = R"(
[data]
kind = "markov"
context = 16
[optimizer]
kind = "adamw"
weight_decay = 0.1
)";

}  // namespace

Assignments With(Assignments assignments, const Assignments& more) {
  assignments.insert(assignments.end(), more.begin(), more.end());
  return assignments;
}

std::vector<RankReport> RunStrategy(const StrategyDefinition& strategy,
                                    const ModelFactory& make_model, const std::string& config,
                                    const Assignments& assignments,
                                    std::shared_ptr<RankDevices> devices,
                                    const std::vector<StrategyDefinition>& legs) {
  auto reports = TryStrategy(strategy, make_model, config, assignments, Start::kFresh,
                             std::move(devices), legs);
  if (!reports.ok()) {
    ADD_FAILURE() << strategy.name << ": " << reports.status();
    return std::vector<RankReport>(1);
  }
  return *std::move(reports);
}

std::vector<Rehearsed> RehearseStrategy(const StrategyDefinition& strategy,
                                        const ModelFactory& make_model, const std::string& config,
                                        const Assignments& assignments,
                                        const RehearsalOptions& options) {
  const auto run = Prepare(strategy, make_model, config, assignments, Start::kFresh);
  EXPECT_TRUE(run.ok()) << strategy.name << ": " << run.status();
  if (!run.ok()) return {};
  auto ranks = Rehearse(*run, options);
  EXPECT_TRUE(ranks.ok()) << strategy.name << ": " << ranks.status();
  return ranks.ok() ? *std::move(ranks) : std::vector<Rehearsed>();
}

std::vector<RankReport> ResumeStrategy(const StrategyDefinition& strategy,
                                       const ModelFactory& make_model, const std::string& config,
                                       const Assignments& assignments,
                                       const std::vector<StrategyDefinition>& legs) {
  auto reports =
      TryStrategy(strategy, make_model, config, assignments, Start::kResume, nullptr, legs);
  if (!reports.ok()) {
    ADD_FAILURE() << strategy.name << ": " << reports.status();
    return std::vector<RankReport>(1);
  }
  return *std::move(reports);
}

void OnStrategies(const StrategyDefinition& strategy, const ModelFactory& make_model,
                  const std::string& config, const Assignments& assignments,
                  const std::function<void(const TrainingRun&, Rank&, Strategy&)>& look) {
  const auto run = Prepare(strategy, make_model, config, assignments, Start::kFresh);
  ASSERT_TRUE(run.ok()) << strategy.name << ": " << run.status();
  const absl::Status status =
      RunRanks(run->settings.mesh.ranks(), {.timeout = absl::Seconds(20)},
               [&](RankHandle& handle) -> absl::Status {
                 SetThreads(1);
                 CpuAllocator allocator;
                 CpuKernels kernels(allocator, run->settings.instructions);
                 LS_ASSIGN_OR_RETURN(Mesh mesh, Mesh::Create(run->settings.mesh, handle.comm()));
                 Trace trace(handle.rank(), TraceWindow{});
                 StepTimer timer({});
                 Rank rank(kernels, mesh, timer, trace);
                 LS_ASSIGN_OR_RETURN(Model model, run->make_model(run->config, *run->dataset));
                 try {
                   look(*run, rank, *MakeStrategy(*run, rank, std::move(model), {}));
                 } catch (const StatusException& error) {
                   return error.status();
                 }
                 return absl::OkStatus();
               });
  EXPECT_TRUE(status.ok()) << strategy.name << ": " << status;
}

std::string RunFolder() { return TestFolder() + "/out"; }

absl::Status FailStrategy(const StrategyDefinition& strategy, const ModelFactory& make_model,
                          const std::string& config, const Assignments& assignments,
                          std::shared_ptr<RankDevices> devices,
                          const std::vector<StrategyDefinition>& legs) {
  auto reports = TryStrategy(strategy, make_model, config, assignments, Start::kFresh,
                             std::move(devices), legs);
  EXPECT_FALSE(reports.ok()) << strategy.name << " was expected to fail";
  return reports.status();
}

absl::Status FailToResume(const StrategyDefinition& strategy, const ModelFactory& make_model,
                          const std::string& config, const Assignments& assignments) {
  auto reports = TryStrategy(strategy, make_model, config, assignments, Start::kResume);
  EXPECT_FALSE(reports.ok()) << strategy.name << " was expected to fail";
  return reports.status();
}

void ExpectSameBits(const std::vector<RankReport>& ranks, const std::vector<RankReport>& single) {
  ASSERT_FALSE(single[0].losses.empty());
  for (const RankReport& rank : ranks) {
    EXPECT_EQ(rank.losses, single[0].losses);
    EXPECT_EQ(rank.parameter_hash, single[0].parameter_hash);
    EXPECT_EQ(rank.validation.loss, single[0].validation.loss);
    EXPECT_EQ(rank.validation.accuracy, single[0].validation.accuracy);
  }
}

void ExpectPredictedTraffic(const RankReport& report) {
  std::map<std::string, double> predicted, sent;
  const auto name = [](Operation operation, const std::string& label) {
    return absl::StrCat(Name(operation), " ", label);
  };
  for (const CostPrediction::Traffic& traffic : report.prediction.traffic) {
    const double times =
        traffic.often == CostPrediction::Often::kOnce ? 1 / static_cast<double>(report.steps) : 1;
    const bool is_new =
        predicted.emplace(name(traffic.operation, traffic.label), times * traffic.wire_bytes)
            .second;
    EXPECT_TRUE(is_new) << Name(traffic.operation) << " " << traffic.label << " is there twice";
  }
  for (const auto& [kind, total] : report.traffic.by_kind) {
    sent[name(kind.first, kind.second)] = total.wire_bytes / static_cast<double>(report.steps);
  }
  for (const auto& [kind, bytes] : predicted) {
    EXPECT_NEAR(sent[kind], bytes, 1e-12 * bytes) << kind;
  }
  for (const auto& [kind, bytes] : sent) {
    EXPECT_TRUE(bytes == 0 || predicted.contains(kind)) << kind << " is not predicted";
  }
}

void ExpectPredictedCosts(const std::vector<RankReport>& ranks) {
  for (const RankReport& report : ranks) {
    ExpectPredictedTraffic(report);
    for (const CostPrediction::Memory& predicted : report.prediction.memory) {
      EXPECT_EQ(report.memory.peak(predicted.memory_class), predicted.bytes)
          << Name(predicted.memory_class);
    }
  }
}

std::string SmallGptConfig() {
  return absl::StrCat(kCommon, R"(
[model]
kind = "transformer"
layers = 2
heads = 2
width = 32
dropout = 0.1
)",
                      kText);
}

std::string SmallLlamaConfig() {
  return absl::StrCat(kCommon, R"(
[model]
kind = "llama"
layers = 2
heads = 4
key_heads = 2
width = 32
mlp_width = 48
)",
                      kText);
}

std::string SmallResNetConfig() {
  return absl::StrCat(kCommon, R"(
[model]
kind = "resnet"
width = 16
[data]
kind = "shapes"
[optimizer]
kind = "sgd"
momentum = 0.9
weight_decay = 0.0005
)");
}

std::string SmallUNetConfig() {
  return absl::StrCat(kCommon, R"(
[model]
kind = "unet"
levels = 2
width = 8
[data]
kind = "shapes_segmentation"
[optimizer]
kind = "sgd"
momentum = 0.9
weight_decay = 0.0005
)");
}

std::string SmallConfig(SmallModel model) {
  switch (model) {
    case SmallModel::kGpt:
      return SmallGptConfig();
    case SmallModel::kLlama:
      return SmallLlamaConfig();
    case SmallModel::kResNet:
      return SmallResNetConfig();
    case SmallModel::kUNet:
      return SmallUNetConfig();
  }
  return "";
}

std::string Name(SmallModel model) {
  switch (model) {
    case SmallModel::kGpt:
      return "Gpt";
    case SmallModel::kLlama:
      return "Llama";
    case SmallModel::kResNet:
      return "ResNet";
    case SmallModel::kUNet:
      return "UNet";
  }
  return "";
}

}  // namespace lockstep
