#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/data/dataset.h"
#include "core/run/strategy.h"
#include "core/tensor/device.h"
#include "core/tensor/memory.h"

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

// ResNet-18 on 32x32 images, and a GPT of six layers: the sizes of the PyTorch side.
TrainingWorkload ResNetWorkload();
TrainingWorkload GptWorkload();
// The model of experiments/gpt_wide, which weighs more than what it computes, on one sequence a
// step. Without a PyTorch side.
TrainingWorkload WideGptWorkload();

struct TrainingTiming {
  double step_seconds = 0;      // median, of the slowest rank
  int64_t peak_bytes = 0;       // of the rank that holds most
  double gflops = 0;            // model GFLOP/s over all ranks: 6 multiply-adds of forward
  double outside_kernels = 0;   // fraction of a step
  double bubble = 0;            // the same, that ranks wait for other stages, in the mean
  double predicted_bubble = 0;  // by the strategy's theory
  MemoryBooks memory;           // of rank 0
};

// Times so many steps, after two that warm up. `shards` data-parallel ranks, each with a batch of
// its own; `assignments` are laid over all else.
absl::StatusOr<TrainingTiming> MeasureTraining(const TrainingWorkload& workload,
                                               const StrategyDefinition& strategy, int steps,
                                               int shards, int threads,
                                               const std::vector<std::string>& assignments = {});

// The end of a row: PyTorch's figure, 0 if there is none, and what ours is of it.
void PrintPeer(double ours, double torch);

}  // namespace lockstep
