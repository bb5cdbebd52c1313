#include "tools/bench/training_run.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/run/leg/training_run.h"
#include "core/run/trainer.h"
#include "models/models.h"
#include "tools/experiment/paths.h"

namespace lockstep {
namespace {

constexpr int kMostRounds = 1'000'000;  // and steps of a round

absl::StatusOr<TrainingTiming> Measure(const TrainingWorkload& workload, int steps,
                                       const Contender& contender) {
  LS_ASSIGN_OR_RETURN(const TemporaryDirectory scratch, TemporaryDirectory::Create());
  const std::string& out = scratch.path();
  const std::string config_path = out + "/bench.toml";
  LS_RETURN_IF_ERROR(WriteFileAtomically(config_path, workload.config));

  const int batches = contender.axis == "dp" ? contender.ranks : 1;
  CommandLine command_line;
  command_line.configs = {config_path};
  command_line.out = out + "/run";
  command_line.device = workload.device;
  command_line.assignments = {absl::StrCat("train.steps=", steps + kWarmUpSteps),
                              absl::StrCat("batch.size=", workload.batch * batches),
                              absl::StrCat("mesh.dp=", batches),
                              absl::StrCat("mesh.", contender.axis, "=", contender.ranks),
                              absl::StrCat("run.threads=", contender.threads),
                              "validation.batches=1"};
  command_line.assignments.insert(command_line.assignments.end(), contender.assignments.begin(),
                                  contender.assignments.end());
  const ModelFactory make_model = [&workload](const Config& config, const Dataset& configured) {
    return MakeModel(config, workload.dataset != nullptr ? *workload.dataset : configured);
  };
  LS_ASSIGN_OR_RETURN(TrainingRun run, PrepareRun(command_line, contender.strategy, make_model));
  if (workload.dataset != nullptr) LS_RETURN_IF_ERROR(ReplaceDataset(run, workload.dataset));
  const int64_t begin = NowNanos();
  LS_ASSIGN_OR_RETURN(const std::vector<RankReport> reports, TrainRanks(run));
  const double run_seconds = SecondsSince(begin);
  const double macs =
      static_cast<double>(MakeModel(run.config, *run.dataset)->ForwardMacsPerSample());
  const RankReport& first = reports.front();
  TrainingTiming timing = {.outside_kernels = 1 - static_cast<double>(first.kernel_nanos) /
                                                      static_cast<double>(first.times.total),
                           .memory = first.memory,
                           .checkpoints = first.checkpoints};
  timing.run_seconds = run_seconds;
  const auto ranks = static_cast<double>(reports.size());
  for (const RankReport& report : reports) {
    timing.step_seconds = std::max(timing.step_seconds, report.median_step_seconds);
    timing.mean_step_seconds =
        std::max(timing.mean_step_seconds, 1e-9 * static_cast<double>(report.times.total) /
                                               static_cast<double>(report.measured_steps));
    timing.peak_bytes = std::max(timing.peak_bytes, report.memory.peak_total());
    timing.bubble += static_cast<double>(report.times.Of(Phase::kBubble)) /
                     static_cast<double>(report.times.total) / ranks;
    timing.predicted_bubble += report.prediction.bubble_fraction / ranks;
  }
  timing.gflops =
      6 * macs * static_cast<double>(run.settings.batch.size) / timing.step_seconds * 1e-9;
  return timing;
}

TrainingWorkload LlamaOf(int64_t context, int64_t batch) {
  return {.name = absl::StrCat("Llama 6 x 384, context ", context, ", batch ", batch),
          .batch = batch,
          .config = absl::StrCat(
              "[model]\nkind = 'llama'\nlayers = 6\nheads = 6\nkey_heads = 2\nwidth = 384\n"
              "mlp_width = 1024\n"
              "[data]\nkind = 'markov'\nvocabulary = 65\norder = 1\ncontext = ",
              context, "\n[optimizer]\nkind = 'adamw'\n[schedule]\nlearning_rate = 0.0003\n"),
          .torch_arguments = absl::StrCat(
              "llama --layers 6 --heads 6 --key_heads 2 --width 384 --mlp_width 1024 --context ",
              context, " --vocab 65 --batch ", batch)};
}

}  // namespace

TrainingWorkload ResNetWorkload() {
  return {.name = "ResNet-18, 32x32, batch 64",
          .batch = 64,
          .config =
              "[model]\nkind = 'resnet'\n[data]\nkind = 'shapes'\n"
              "[optimizer]\nkind = 'sgd'\nmomentum = 0.9\n[schedule]\nlearning_rate = 0.01\n",
          .torch_arguments = "resnet18 --batch 64"};
}

TrainingWorkload GptWorkload() {
  return {.name = "GPT 6 x 384, context 256, batch 16",
          .batch = 16,
          .config =
              "[model]\nkind = 'transformer'\nlayers = 6\nheads = 6\nwidth = 384\n"
              "[data]\nkind = 'markov'\nvocabulary = 65\norder = 1\ncontext = 256\n"
              "[optimizer]\nkind = 'adamw'\n[schedule]\nlearning_rate = 0.0003\n",
          .torch_arguments =
              "gpt --layers 6 --heads 6 --width 384 --context 256 --vocab 65 "
              "--batch 16"};
}

TrainingWorkload LlamaWorkload() { return LlamaOf(/*context=*/256, /*batch=*/16); }

TrainingWorkload LongLlamaWorkload() { return LlamaOf(/*context=*/4096, /*batch=*/1); }

TrainingWorkload WideGptWorkload() {
  return {.name = "GPT 8 x 1024, context 32, batch 1",
          .batch = 1,
          .config =
              "[model]\nkind = 'transformer'\nlayers = 8\nheads = 16\nwidth = 1024\n"
              "[data]\nkind = 'markov'\nvocabulary = 64\norder = 1\ncontext = 32\n"
              "[optimizer]\nkind = 'adamw'\n[schedule]\nlearning_rate = 0.0001\n"
              "[checkpoint]\nkeep = 0\n",
          .torch_arguments = ""};
}

TrainingWorkload SmallGptWorkload() {
  return {
      .name = "GPT 2 x 64, context 64, batch 16",
      .batch = 16,
      .config =
          "[model]\nkind = 'transformer'\nlayers = 2\nheads = 4\nwidth = 64\n"
          "[data]\nkind = 'markov'\nvocabulary = 16\norder = 2\ncontext = 64\n"
          "[cut]\nshards = 4\ntokens = 2\nfeatures = 4\n"
          "[optimizer]\nkind = 'adamw'\n[schedule]\nlearning_rate = 0.001\n"
          "[checkpoint]\nkeep = 0\n",
      .torch_arguments = "gpt --layers 2 --heads 4 --width 64 --context 64 --vocab 16 --batch 16"};
}

std::string TorchSizes(const TrainingWorkload& workload) {
  return workload.torch_arguments.substr(workload.torch_arguments.find(' ') + 1);
}

absl::Status MeasureInTurn(const TrainingWorkload& workload, const Rounds& rounds,
                           absl::Span<Contender> contenders) {
  LS_RETURN_IF_ERROR(CheckRange("rounds", rounds.count, 1, kMostRounds));
  LS_RETURN_IF_ERROR(CheckRange("steps", rounds.steps, 1, kMostRounds));
  std::fflush(stdout);  // the header of the table, for whoever reads it through a pipe
  for (int round = 0; round < rounds.count; ++round) {
    const std::string progress =
        rounds.progress.empty()
            ? absl::StrCat(workload.name, ", round ", round + 1, " of ", rounds.count)
            : rounds.progress;
    std::fprintf(stderr, "bench: %s\n", progress.c_str());
    rounds.before_each();
    for (Contender& contender : contenders) {
      LS_ASSIGN_OR_RETURN(const TrainingTiming timing, Measure(workload, rounds.steps, contender));
      if (timing.gflops > contender.best.gflops) contender.best = timing;
      if (!rounds.peer || contender.torch_arguments.empty()) continue;
      LS_ASSIGN_OR_RETURN(const double theirs,
                          RunTorchPeer(*rounds.peer, contender.torch_arguments, contender.ranks));
      contender.torch_gflops = std::max(contender.torch_gflops, theirs);
    }
  }
  return absl::OkStatus();
}

void PrintPeer(double ours, double torch) {
  if (torch > 0) {
    std::printf(" %9.1f %7.2f\n", torch, ours / torch);
  } else {
    std::printf(" %9s %7s\n", "-", "-");
  }
  std::fflush(stdout);
}

}  // namespace lockstep
