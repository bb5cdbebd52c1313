#include "core/data/copies.h"

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "core/base/elementary.h"
#include "core/base/status.h"

namespace lockstep {

absl::StatusOr<std::shared_ptr<const Copies>> Copies::Create(const CopiesOptions& options) {
  if (options.slots < 1 || options.values < 2 || options.repeats < 1 ||
      options.slots * options.repeats >= options.distance) {
    return InvalidArgument(
        "copies need a passage of at least 1 token, shorter than the distance, and 2 values or "
        "more for each run, but data.slots is ",
        options.slots, ", data.repeats ", options.repeats, ", data.distance ", options.distance,
        " and data.values ", options.values);
  }
  if (options.context < 1 || 2 * options.distance % options.context != 0) {
    return InvalidArgument("data.context is ", options.context,
                           ", but must divide a text of copies, which is two distances, ",
                           2 * options.distance, " tokens; change data.context or data.distance");
  }
  if (options.train_samples < 1 || options.validation_samples < 1) {
    return absl::InvalidArgumentError("copies need at least one sample in each split");
  }
  return std::shared_ptr<const Copies>(new Copies(options));
}

Copies::Copies(const CopiesOptions& options)
    : TokenDataset(options.context),
      options_(options),
      train_(PhiloxKey(options.seed, "copies", "train")),
      validation_(PhiloxKey(options.seed, "copies", "validation")) {}

std::string Copies::Describe() const {
  return absl::StrFormat(
      "copies (built in): passages of %d runs of %d tokens with %d values, copied at a distance of "
      "%d, "
      "lowest loss at context %d %.4f nats; %d training and %d validation samples",
      options_.slots, options_.repeats, options_.values, options_.distance, options_.context,
      *loss_floor(), options_.train_samples, options_.validation_samples);
}

int64_t Copies::size(Split split) const {
  return split == Split::kTrain ? options_.train_samples : options_.validation_samples;
}

std::optional<double> Copies::loss_floor() const {
  const int64_t text = 2 * options_.distance;
  int64_t unknown = 0;
  for (int64_t target = 1; target <= text; ++target) {
    const int64_t window = (target - 1) / options_.context * options_.context;
    const int64_t place = target % options_.distance;
    const bool begins_run = place < passage() && place % options_.repeats == 0;
    if (begins_run && target - options_.distance < window) ++unknown;
  }
  return Log(static_cast<double>(options_.values)) * static_cast<double>(unknown) /
         static_cast<double>(text);
}

absl::Status Copies::FillWindow(Split split, const SampleKey& key,
                                absl::Span<int32_t> window) const {
  const auto text = static_cast<uint64_t>(key.index / windows());
  int64_t position = key.index % windows() * options_.context;
  const Philox& random = split == Split::kTrain ? train_ : validation_;
  for (int32_t& token : window) {
    const int64_t place = position++ % options_.distance;
    token = 0;
    if (place >= passage()) continue;
    const int64_t slot = place / options_.repeats;
    const uint64_t bits = random.Block(static_cast<uint64_t>(slot), text)[0];
    token = static_cast<int32_t>(1 + slot * options_.values) +
            static_cast<int32_t>(bits * static_cast<uint64_t>(options_.values) >> 32);
  }
  return absl::OkStatus();
}

}  // namespace lockstep
