// What every data set offers: samples by key, the same bits whoever asks.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/tensor/tensor.h"

namespace lockstep {

enum class Task {
  kClassification,  // an image has one class
  kSegmentation,    // each pixel of an image has one
  kLanguageModel,   // every token has a successor to be guessed
};

enum class Split { kTrain, kValidation };

// An index that asks for padding instead of a sample; see SampleKey.
inline constexpr int64_t kNoSample = -1;

// A target that no loss and no accuracy counts.
inline constexpr int32_t kIgnoredTarget = -1;

// Names one sample: which of its split, and the counter of the random numbers that vary it (crop,
// flip). The sampler gives each draw of a run a counter of its own.
struct SampleKey {
  int64_t index = kNoSample;
  uint64_t augmentation = 0;

  friend bool operator==(const SampleKey&, const SampleKey&) = default;
};

// One micro-batch.
//   classification:  inputs f32 [batch, height, width, channels], targets i32 [batch]
//   segmentation:    inputs f32 [batch, height, width, channels], targets i32 [batch, height,
//   width] language model:  inputs i32 [batch, time],                    targets i32 [batch, time]
//
// Samples of a data set that packs documents have besides:
//   documents        i32 [batch, time], of each token where its document begins in the sample; in
//                    host memory, and never in the order of token leaves
//   targets_of_step  targets of the whole step's global batch that are not ignored; 0: unknown, as
//                    where none is
struct Batch {
  Tensor inputs;
  Tensor targets;
  Tensor documents = {};
  int64_t targets_of_step = 0;
};

// A data set, immutable once made: threads of all ranks may share one.
class Dataset {
 public:
  virtual ~Dataset() = default;

  // One line for people: what was loaded, how much, from where.
  virtual std::string Describe() const = 0;

  virtual Task task() const = 0;

  // Shapes of one sample, without the batch: [height, width, channels] and [] or [height, width];
  // or [time] and [time].
  virtual Shape input_shape() const = 0;
  virtual Shape target_shape() const = 0;
  virtual DType input_dtype() const = 0;

  // The number of classes, or the size of the vocabulary: targets are below it.
  virtual int64_t classes() const = 0;

  // Samples of a split: indices run from 0 to one below it.
  virtual int64_t size(Split split) const = 0;

  // Writes sample i of `keys` into row i of the batch, whose tensors have the types above, are in
  // host memory and have as many rows as there are keys. A row depends on the split, its key and
  // the data set's options and on nothing else. kNoSample fills a row with zeros and
  // kIgnoredTarget, so that the last batch of a split has the shape of the others. Requires every
  // other index in [0, size(split)). Thread-safe; allocates no tensor.
  virtual absl::Status Fill(Split split, absl::Span<const SampleKey> keys,
                            const Batch& batch) const = 0;

  // A checksum of all that the samples have from files; nullopt where they are computed from the
  // data set's options.
  virtual std::optional<uint64_t> file_checksum() const { return std::nullopt; }

  // Whether a sample is packed from several documents, whose tokens must not see each other.
  virtual bool packs_documents() const { return false; }

  // Number of targets of a sample that are not ignored. In a data set that packs documents,
  // the last token of each document has none. Requires an index as Fill does, and not kNoSample.
  virtual absl::StatusOr<int64_t> CountTargets(Split /*split*/, const SampleKey& /*key*/) const {
    return target_shape().elements();
  }

  // Where it is known: the entropy rate of the source in nats per token, what a model that sees all
  // the past cannot get below on average.
  virtual std::optional<double> entropy_rate() const { return std::nullopt; }

  // Where it is known: the lowest expected loss of a model that sees only the tokens of its window,
  // in nats per token. A little above entropy_rate(), as the first tokens of a window have no past.
  virtual std::optional<double> loss_floor() const { return std::nullopt; }
};

// A batch of `samples` rows with undefined contents, of the types and shapes that Fill wants.
// Throws StatusException when there is no room.
Batch EmptyBatch(const Dataset& dataset, int64_t samples, Allocator& allocator,
                 MemoryClass memory_class);

}  // namespace lockstep
