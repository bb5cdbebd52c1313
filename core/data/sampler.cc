#include "core/data/sampler.h"

#include <algorithm>  // std::min
#include <array>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/philox.h"
#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {

SampleOrder UsualOrder(Task task) {
  return task == Task::kLanguageModel ? SampleOrder::kDraws : SampleOrder::kEpochs;
}

absl::StatusOr<Sampler> Sampler::Create(const Dataset& dataset, const SamplerOptions& options) {
  if (options.global_batch < 1 || options.shards < 1 || options.micro_batches < 1) {
    return InvalidArgument(
        "the global batch, the shards and the micro-batches must each be at least 1, but are ",
        options.global_batch, ", ", options.shards, " and ", options.micro_batches);
  }
  if (options.global_batch % options.shards != 0) {
    const int64_t below = options.global_batch / options.shards * options.shards;
    return InvalidArgument("a global batch of ", options.global_batch,
                           " samples does not divide into ", options.shards,
                           " shards of one size; it must be a multiple of ", options.shards,
                           ", such as ", below > 0 ? absl::StrCat(below, " or ") : std::string(),
                           below + options.shards);
  }
  const int64_t train_size = dataset.size(Split::kTrain);
  if (train_size < 1 ||
      (options.order == SampleOrder::kEpochs && train_size < options.global_batch)) {
    return InvalidArgument("the training split has ", train_size,
                           " samples, fewer than one global batch of ", options.global_batch,
                           ": use a smaller global batch or more data");
  }
  return Sampler(options, train_size, dataset.size(Split::kValidation));
}

Sampler::Sampler(const SamplerOptions& options, int64_t train_size, int64_t validation_size)
    : options_(options),
      train_size_(train_size),
      validation_size_(validation_size),
      draws_(PhiloxKey(options.seed, "sampler", "draws")),
      epochs_(PhiloxKey(options.seed, "sampler", "epochs"), train_size) {
  options_.micro_batches = std::min(options.micro_batches, options.global_batch / options.shards);
}

std::optional<int64_t> Sampler::steps_per_epoch() const {
  if (options_.order == SampleOrder::kDraws) return std::nullopt;
  return train_size_ / options_.global_batch;
}

Range Sampler::SamplesOf(int64_t micro_batch) const {
  CHECK_GE(micro_batch, 0);
  CHECK_LT(micro_batch, micro_batches_per_step());
  const int64_t of_shard = options_.global_batch / options_.shards;
  Range range = EvenRange(of_shard, options_.micro_batches, micro_batch % options_.micro_batches);
  range.first += micro_batch / options_.micro_batches * of_shard;
  return range;
}

std::vector<SampleKey> Sampler::TrainKeys(int64_t step, int64_t micro_batch) const {
  CHECK_GE(step, 0);
  const auto [first, count] = SamplesOf(micro_batch);
  std::vector<SampleKey> keys(count);
  for (int64_t j = 0; j < count; ++j) {
    const uint64_t draw = static_cast<uint64_t>(step * options_.global_batch + first + j);
    int64_t index;
    if (options_.order == SampleOrder::kEpochs) {
      const int64_t steps = *steps_per_epoch();
      index = epochs_.At(step % steps * options_.global_batch + first + j,
                         static_cast<uint64_t>(step / steps));
    } else {
      // 64 random bits scaled to the size: the bias, size / 2^64, is beyond notice.
      const std::array<uint32_t, 4> words = draws_.Block(draw, 0);
      const uint64_t bits = uint64_t{words[1]} << 32 | words[0];
      __extension__ using uint128 = unsigned __int128;
      index = static_cast<int64_t>(uint128{bits} * static_cast<uint64_t>(train_size_) >> 64);
    }
    keys[j] = {.index = index, .augmentation = draw};
  }
  return keys;
}

int64_t Sampler::ValidationBatches(int64_t batch_size, int64_t limit) const {
  CHECK_GE(batch_size, 1);
  const int64_t all = (validation_size_ + batch_size - 1) / batch_size;
  return limit > 0 ? std::min(all, limit) : all;
}

std::vector<SampleKey> Sampler::ValidationKeys(int64_t batch, int64_t batch_size) const {
  CHECK_GE(batch, 0);
  CHECK_LT(batch, ValidationBatches(batch_size));
  std::vector<SampleKey> keys(batch_size);
  for (int64_t j = 0; j < batch_size; ++j) {
    const int64_t index = batch * batch_size + j;
    if (index < validation_size_) keys[j].index = index;
  }
  return keys;
}

}  // namespace lockstep
