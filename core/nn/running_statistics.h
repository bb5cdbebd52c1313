#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "core/kernels/kernels.h"
#include "core/tensor/slice.h"

namespace lockstep {

// The running mean and variance of one batch normalisation. Training normalises each micro-batch by
// its own statistics and gathers them here; once a step the estimate moves towards those of all
// micro-batches of all ranks, so that it is the same whatever ran them (contract 3 of the design).
// A micro-batch weighs as much as it has rows: 1 for the largest of the step, of which every shard
// has one and runs it first. Where updates are not deferred ([train] deferred_batch_norm = false),
// the estimate moves once for each micro-batch instead; see MicroBatchStatistics.
class RunningStatistics {
 public:
  // What the buffers `mean` and `variance` are called behind the layer's name.
  struct BufferNames {
    const char* mean = ".running_mean";
    const char* variance = ".running_var";
  };

  // Each update moves the estimate by `update_momentum`; without one it is the mean of all updates.
  RunningStatistics(std::string layer_name, int64_t channel_count,
                    std::optional<float> update_momentum)
      : name(std::move(layer_name)), channels(channel_count), momentum(update_momentum) {}
  virtual ~RunningStatistics() = default;

  virtual BufferNames buffer_names() const { return {}; }

  // The layer's; a buffer is called name + one of buffer_names(), or ".updates" without momentum.
  std::string name;
  int64_t channels;
  std::optional<float> momentum;
  // The estimate stays what it is, and training normalises by it, as evaluation does. Else the base
  // of an adapter would change while it is adapted, and what was trained would not be what is
  // evaluated, or merged.
  bool frozen = false;
  // The channels that ranks hold where tensor parallelism splits the layer; none: all.
  std::optional<Slice> slice;
  int64_t held_channels() const { return slice ? slice->extent() : channels; }
  Tensor mean, variance;  // [held channels]
  Tensor updates;         // [1], i64: so many so far; undefined where there is a momentum
  // [3, held channels]: of this step's micro-batches, not yet in the estimate; none where frozen.
  Tensor sums;
  int64_t rows = 0;  // of the largest micro-batch: batch * height * width

  virtual void Materialize(Kernels& kernels);

  // Adds the statistics of one micro-batch of `micro_batch_rows` rows.
  void Gather(Kernels& kernels, const Tensor& batch_mean, const Tensor& batch_variance,
              int64_t micro_batch_rows);

  // Moves the estimate once `sums` holds those of all micro-batches of the step, which together
  // weigh `weight`.
  virtual void Update(Kernels& kernels, double weight);

  // Whether the estimate may also move once for each micro-batch. False: what is gathered means
  // something only as the sum over a whole step.
  virtual bool can_follow_micro_batches() const { return true; }
  // Moves the estimate towards the statistics of one micro-batch of `micro_batch_rows` rows:
  // [2, held channels], its mean and its variance, which is divided by the number of rows.
  void Follow(Kernels& kernels, const Tensor& statistics, int64_t micro_batch_rows);

  // Starts the next step (or shard): the next Gather replaces the sums.
  void Clear() { gathered_ = false; }

 protected:
  // Adds to `sums`, or replaces what an earlier step (or shard) has left there.
  void AddToSums(Kernels& kernels, const Tensor& batch_mean, const Tensor& batch_variance,
                 float weight);

 private:
  // Counts an update; how far it moves the estimate.
  float NextMomentum(Kernels& kernels);

  bool gathered_ = false;
};

}  // namespace lockstep
