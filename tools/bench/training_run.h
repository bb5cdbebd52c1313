#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/checkpoint/checkpoint_costs.h"
#include "core/data/dataset.h"
#include "core/run/strategy/strategy.h"
#include "core/tensor/device.h"
#include "core/tensor/memory.h"
#include "tools/bench/torch_peer.h"

namespace lockstep {

// Training as the benchmarks measure it: a whole model through the trainer, data and all.
struct TrainingWorkload {
  std::string name;
  int64_t batch;       // of each rank
  std::string config;  // model and data
  std::string torch_arguments;
  DeviceType device = DeviceType::kCpu;
  std::shared_ptr<const Dataset> dataset = nullptr;  // null: the configuration's
};

// The arguments without the name of the model, for scripts that know one model only.
std::string TorchSizes(const TrainingWorkload& workload);

// ResNet-18 on 32x32 images, and a GPT of six layers: the sizes of the PyTorch side.
TrainingWorkload ResNetWorkload();
TrainingWorkload GptWorkload();
// A Llama of the same size: blocks of the same width and depth, groups of three heads, and an MLP
// of nearly as many elements.
TrainingWorkload LlamaWorkload();
// The same Llama on one long sequence a step, as many tokens.
TrainingWorkload LongLlamaWorkload();
// The model of experiments/gpt_wide, which weighs more than what it computes, on one sequence a
// step. Without a PyTorch side.
TrainingWorkload WideGptWorkload();
// The model of experiments/gpt_markov, whose kernels take microseconds.
TrainingWorkload SmallGptWorkload();

inline constexpr int kWarmUpSteps = 2;  // the trainer leaves them out of its times

struct TrainingTiming {
  double step_seconds = 0;       // median, of the slowest rank
  double mean_step_seconds = 0;  // of the slowest rank
  double run_seconds = 0;        // from before the first step to behind the last, warm-up included
  int64_t peak_bytes = 0;        // of the rank that holds most
  double gflops = 0;             // model GFLOP/s over all ranks: 6 multiply-adds of forward
  double outside_kernels = 0;    // fraction of a step
  double bubble = 0;             // fraction of a step that ranks wait for other stages, on average
  double predicted_bubble = 0;   // by the strategy's theory
  MemoryBooks memory;            // of rank 0
  CheckpointCosts checkpoints;   // of rank 0
};

// One way to train a workload, beside others.
struct Contender {
  std::string name = {};
  StrategyDefinition strategy;
  int ranks = 1;                              // PyTorch's side has as many
  std::string axis = "dp";                    // of the mesh; along dp, each rank has a batch
  int threads = 2;                            // of a rank
  std::vector<std::string> assignments = {};  // laid over all else
  std::string torch_arguments = {};           // of PyTorch's side of it; empty: there is none

  // The fastest of all rounds.
  TrainingTiming best = {};
  double torch_gflops = 0;  // 0: not measured
};

struct Rounds {
  int count = 1;
  int steps = 1;  // timed in each measurement, after two that warm up
  std::optional<TorchPeer> peer = {};
  std::function<void()> before_each = [] {};
  std::string progress = {};  // how progress names a round; empty: workload and number
};

// Times the contenders, and PyTorch's side of each, in turn, once in each round, because a
// machine's neighbours slow down now one of them and now another. Says on the standard error stream
// which round has begun. InvalidArgument where `rounds` has no round or no step.
absl::Status MeasureInTurn(const TrainingWorkload& workload, const Rounds& rounds,
                           absl::Span<Contender> contenders);

// Prints the end of a row: PyTorch's figure (0: none was measured), and ours divided by it.
void PrintPeer(double ours, double torch);

}  // namespace lockstep
