// How fast one GPU trains, against what it could do and against PyTorch on the same work.
//
//   ./bazelw run --config=cuda //tools/bench:gpu_training -- --python /path/to/python
//
// Each row trains a whole model in bf16 with fp32 masters through the trainer, from samples in host
// memory. Model FLOPs are 6 multiply-adds of forward, attention counted in full. The floors are
// what a step cannot go below: its FLOPs at the rate of large products, measured in the same run;
// and its bytes at the rate of a copy, where parameters, gradients and optimizer state are read and
// written once, and what is kept for backward is written once and read once.

#include "tools/bench/gpu_training.h"

#include <cstdio>
#include <optional>
#include <string>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "strategies/single/single.h"
#include "tools/bench/gpu_limits.h"
#include "tools/bench/random_data.h"
#include "tools/bench/training_run.h"

ABSL_FLAG(int, steps, 20, "timed steps of each measurement; two more warm up");
ABSL_FLAG(int, rounds, 2, "measurements of each figure, of which the best counts");
ABSL_FLAG(int, gpt_batch, 32, "sequences of 1024 tokens a step");
ABSL_FLAG(int, resnet_batch, 256, "images of 224 x 224 a step");
ABSL_FLAG(std::string, model, "", "gpt or resnet; empty: both");
ABSL_FLAG(std::string, python, "python3", "an interpreter with PyTorch, to compare with");
ABSL_FLAG(std::string, torch_peer, "tools/bench/torch_peer.py",
          "the script of the PyTorch side; empty: no comparison");

namespace lockstep {
namespace {

// `precision` has further keys of that table.
TrainingWorkload Gpt2(const std::string& name, const std::string& precision) {
  return {.name = name,
          .batch = absl::GetFlag(FLAGS_gpt_batch),
          .config =
              "[model]\nkind = 'transformer'\nlayers = 12\nheads = 12\nwidth = 768\n"
              "[data]\nkind = 'markov'\ncontext = 1024\n[precision]\ncompute = 'bf16'\n" +
              precision + "[optimizer]\nkind = 'adamw'\n[schedule]\nlearning_rate = 0.0003\n",
          .torch_arguments =
              "gpt --layers 12 --heads 12 --width 768 --context 1024 --vocab 50304 "
              "--device cuda --amp bf16 --compile",
          .device = DeviceType::kCuda,
          .dataset = RandomTokens(50304, 1024)};
}

TrainingWorkload ResNet50() {
  return {.name = "ResNet-50, 224 x 224",
          .batch = absl::GetFlag(FLAGS_resnet_batch),
          .config =
              "[model]\nkind = 'resnet'\ndepth = 50\nstem = 'imagenet'\n"
              "[data]\nkind = 'shapes'\n[precision]\ncompute = 'bf16'\n"
              "[optimizer]\nkind = 'sgd'\nmomentum = 0.9\n[schedule]\nlearning_rate = 0.1\n",
          .torch_arguments = "resnet50 --image 224 --classes 1000 --device cuda --amp bf16",
          .device = DeviceType::kCuda,
          .dataset = RandomImages(224, 1000)};
}

// Read and written in a step at least.
double FloorBytes(const MemoryBooks& memory) {
  int64_t bytes = 0;
  for (const MemoryClass kept : {MemoryClass::kParameters, MemoryClass::kGradients,
                                 MemoryClass::kOptimizerState, MemoryClass::kActivations}) {
    bytes += 2 * memory.peak(kept);
  }
  return static_cast<double>(bytes);
}

absl::Status Compare(const TrainingWorkload& workload, const GpuLimits& limits,
                     const std::optional<TorchPeer>& peer) {
  Contender ours = {
      .strategy = SingleStrategy(),
      .threads = 8,
      .torch_arguments = absl::StrCat(workload.torch_arguments, " --batch ", workload.batch)};
  LS_RETURN_IF_ERROR(MeasureInTurn(
      workload,
      {.count = absl::GetFlag(FLAGS_rounds), .steps = absl::GetFlag(FLAGS_steps), .peer = peer},
      absl::MakeSpan(&ours, 1)));
  const TrainingTiming& best = ours.best;
  const double flops = best.gflops * 1e9 * best.step_seconds;
  const double samples = static_cast<double>(workload.batch) / best.step_seconds;
  const int64_t tokens = workload.dataset->target_shape().elements();
  std::printf("%-28s %6d %12.0f %9.1f %10.3f %9.1f %9.1f %9.1f", workload.name.c_str(),
              static_cast<int>(workload.batch), samples * static_cast<double>(tokens),
              1e3 * best.step_seconds, best.gflops / limits.bf16_gflops,
              flops / limits.bf16_gflops * 1e-6,
              1e3 * FloorBytes(best.memory) / limits.bytes_per_second, best.gflops * 1e-3);
  PrintPeer(best.gflops * 1e-3, ours.torch_gflops * 1e-3);
  return absl::OkStatus();
}

absl::StatusOr<int> RunBenchmark() {
  LS_RETURN_IF_ERROR(CheckRange("rounds", absl::GetFlag(FLAGS_rounds), 1, 1'000'000));
  LS_RETURN_IF_ERROR(CheckRange("steps", absl::GetFlag(FLAGS_steps), 1, 1'000'000));
  const std::string model = absl::GetFlag(FLAGS_model);
  if (!model.empty() && model != "gpt" && model != "resnet") {
    return absl::InvalidArgumentError(
        absl::StrCat("--model is gpt, resnet or empty, not \"", model, "\""));
  }
  LS_ASSIGN_OR_RETURN(const GpuLimits limits, MeasureGpuLimits());
  const auto peer = FindTorchPeer(absl::GetFlag(FLAGS_python), absl::GetFlag(FLAGS_torch_peer));
  std::printf("the GPU: %.0f TFLOP/s in products of bf16, %.2f TB/s in a copy\n",
              limits.bf16_gflops * 1e-3, limits.bytes_per_second * 1e-12);
  std::printf("an upload of 154 MB: %.1f ms, of which the host is held %.2f ms; by slots %.1f ms\n",
              1e3 * limits.upload_seconds, 1e3 * limits.upload_host_seconds,
              1e3 * limits.slots_seconds);
  std::printf("a product: %.1f ms, with an upload beside it %.1f ms\n\n",
              1e3 * limits.product_seconds, 1e3 * limits.product_and_upload_seconds);
  std::printf("%-28s %6s %12s %9s %10s %9s %9s %9s %9s %7s\n", "one GPU, bf16, fp32 masters",
              "batch", "targets/s", "step ms", "of rate", "FLOPs ms", "bytes ms", "TFLOP/s",
              "PyTorch", "ratio");
  if (model != "resnet") {
    LS_RETURN_IF_ERROR(Compare(Gpt2("GPT-2 124M, context 1024", ""), limits, peer));
    LS_RETURN_IF_ERROR(
        Compare(Gpt2("the same, our own attention", "cudnn_attention = false\n"), limits, peer));
  }
  if (model != "gpt") LS_RETURN_IF_ERROR(Compare(ResNet50(), limits, peer));
  return 0;
}

}  // namespace

int GpuTrainingMain(int argc, char** argv) {
  return RunProgram(
      argc, argv,
      {.usage = "Times training on a GPU, against what it could do and against PyTorch.",
       .files = {__FILE__}},
      [](const auto&) { return RunBenchmark(); });
}

}  // namespace lockstep
