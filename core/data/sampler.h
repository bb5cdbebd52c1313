#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/data/dataset.h"
#include "core/data/permutation.h"
#include "core/tensor/slice.h"

namespace lockstep {

// How training walks through its split.
enum class SampleOrder {
  // Each epoch visits the samples in a new random order. A step takes the next global batch; what
  // is left at the end of an epoch and does not fill a batch is dropped, as with PyTorch's
  // DataLoader(shuffle=True, drop_last=True). It is another rest in each epoch.
  kEpochs,
  // Each sample is drawn from the whole split, independently, as nanoGPT draws where a window
  // starts. There are no epochs.
  kDraws,
};

// The order that is usual for a task: epochs for images, draws for text.
SampleOrder UsualOrder(Task task);

struct SamplerOptions {
  uint64_t seed = 0;
  int64_t global_batch = 1;   // samples of one step, over all shards
  int64_t shards = 1;         // data-parallel shards
  int64_t micro_batches = 1;  // of one shard; of one with fewer samples, as many as these
  SampleOrder order = SampleOrder::kEpochs;
};

// Says which samples make micro-batch i of step s (contract 2 of the design). A pure function of
// the options and the size of the data set: the ranks of every strategy ask it for their own
// micro-batches, and a resumed run for the steps that are left. It keeps no state.
//
// The micro-batches of a step are numbered from 0 to shards * micro_batches - 1; shard k has those
// from k * micro_batches on. Shards have the same size; the sizes of a shard's micro-batches differ
// by one at most, the larger ones first. Sample n of a step, counted through its micro-batches in
// order, is draw number step * global_batch + n of the run, so that the samples of a step stay the
// same when it is cut in another way.
class Sampler {
 public:
  // InvalidArgument when the global batch does not divide into shards of one size, or, with
  // kEpochs, the training split has fewer samples than one global batch. `dataset` is not kept.
  static absl::StatusOr<Sampler> Create(const Dataset& dataset, const SamplerOptions& options);

  const SamplerOptions& options() const { return options_; }
  int64_t micro_batches_per_step() const { return options_.shards * options_.micro_batches; }
  // Number of samples of a micro-batch in [0, micro_batches_per_step()).
  int64_t samples_of(int64_t micro_batch) const { return SamplesOf(micro_batch).count; }

  // With kEpochs, how many steps make one; nothing with kDraws.
  std::optional<int64_t> steps_per_epoch() const;

  // The keys of one micro-batch of training, samples_of(micro_batch) of them. Requires step >= 0
  // and micro_batch in [0, micro_batches_per_step()). About 0.5 us a key.
  std::vector<SampleKey> TrainKeys(int64_t step, int64_t micro_batch) const;

  // Validation goes through its split in order, in batches of `batch_size`. How many batches that
  // are; `limit` keeps the first so many where it is positive.
  int64_t ValidationBatches(int64_t batch_size, int64_t limit = 0) const;

  // The keys of validation batch number `batch`, always `batch_size` of them: the last batch is
  // filled up with kNoSample.
  std::vector<SampleKey> ValidationKeys(int64_t batch, int64_t batch_size) const;

 private:
  Sampler(const SamplerOptions& options, int64_t train_size, int64_t validation_size);

  // Which of the step's samples a micro-batch has.
  Range SamplesOf(int64_t micro_batch) const;

  SamplerOptions options_;
  int64_t train_size_;
  int64_t validation_size_;
  Philox draws_;
  Permutation epochs_;
};

}  // namespace lockstep
