#include "core/data/markov.h"

#include <utility>  // std::move

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

uint64_t TextKey(const MarkovSourceOptions& source, const char* split) {
  return PhiloxKey(source.seed, "markov", absl::StrCat("text.", source.source, ".", split));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Markov>> Markov::Create(const MarkovOptions& options) {
  if (options.context < 1 || options.train_samples < 1 || options.validation_samples < 1) {
    return InvalidArgument(
        "markov needs a context of at least 1 token and at least one sample in each "
        "split, but has ",
        options.context, ", ", options.train_samples, " for training and ",
        options.validation_samples, " for validation");
  }
  LS_ASSIGN_OR_RETURN(MarkovSource source, MarkovSource::Create(options.source));
  return std::shared_ptr<const Markov>(new Markov(options, std::move(source)));
}

Markov::Markov(const MarkovOptions& options, MarkovSource source)
    : TokenDataset(options.context),
      source_(std::move(source)),
      train_samples_(options.train_samples),
      validation_samples_(options.validation_samples),
      train_(TextKey(options.source, "train")),
      validation_(TextKey(options.source, "validation")) {}

std::string Markov::Describe() const {
  const MarkovSourceOptions& options = source_.options();
  return absl::StrFormat(
      "markov (built in): source %d of seed %d, vocabulary %d, order %d, entropy rate %.4f nats, "
      "lowest loss at context %d %.4f nats",
      options.source, options.seed, options.vocabulary, options.order, source_.entropy_rate(),
      context(), source_.LossFloor(context()));
}

int64_t Markov::size(Split split) const {
  return split == Split::kTrain ? train_samples_ : validation_samples_;
}

absl::Status Markov::FillWindow(Split split, const SampleKey& key,
                                absl::Span<int32_t> window) const {
  source_.Write(split == Split::kTrain ? train_ : validation_, key.index, window);
  return absl::OkStatus();
}

}  // namespace lockstep
