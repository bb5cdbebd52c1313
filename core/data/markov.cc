#include "core/data/markov.h"

#include <algorithm>  // std::min
#include <cstddef>
#include <iterator>  // std::ssize
#include <utility>   // std::move

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
      document_tokens_(options.document_tokens),
      train_samples_(options.train_samples),
      validation_samples_(options.validation_samples),
      train_(TextKey(options.source, "train")),
      validation_(TextKey(options.source, "validation")) {}

std::string Markov::Describe() const {
  const MarkovSourceOptions& options = source_.options();
  const std::string source = absl::StrFormat(
      "markov (built in): source %d of seed %d, vocabulary %d, order %d, entropy rate %.4f nats, ",
      options.source, options.seed, options.vocabulary, options.order, source_.entropy_rate());
  const std::string sizes = absl::StrFormat("; %d training and %d validation samples",
                                            train_samples_, validation_samples_);
  if (packs_documents()) {
    return absl::StrFormat("%sdocuments of %d tokens on average, packed into %d%s", source,
                           document_tokens_, context(), sizes);
  }
  return absl::StrFormat("%slowest loss at context %d %.4f nats%s", source, context(),
                         source_.LossFloor(context()), sizes);
}

int64_t Markov::size(Split split) const {
  return split == Split::kTrain ? train_samples_ : validation_samples_;
}

absl::Status Markov::FillWindow(Split split, const SampleKey& key,
                                absl::Span<int32_t> window) const {
  if (!packs_documents()) {
    source_.Write(TextOf(split), key.index, window);
    return absl::OkStatus();
  }
  size_t begin = 0;
  for (const int64_t length : Lengths(split, key, std::ssize(window))) {
    // A text for each document: its key is a random number that belongs to sample and place.
    const auto words = TextOf(split).Block(begin, ~static_cast<uint64_t>(key.index));
    const Philox text(static_cast<uint64_t>(words[0]) << 32 | words[1]);
    source_.Write(text, key.index, window.subspan(begin, static_cast<size_t>(length)));
    begin += static_cast<size_t>(length);
  }
  return absl::OkStatus();
}

std::vector<int64_t> Markov::Lengths(Split split, const SampleKey& key, int64_t tokens) const {
  std::vector<int64_t> lengths;
  const uint64_t most = 2 * static_cast<uint64_t>(document_tokens_) - 1;
  for (int64_t begin = 0; begin < tokens; begin += lengths.back()) {
    const auto words =
        TextOf(split).Block(static_cast<uint64_t>(begin), ~static_cast<uint64_t>(key.index));
    const auto length = static_cast<int64_t>(1 + (words[2] * most >> 32));
    lengths.push_back(std::min(length, tokens - begin));
  }
  return lengths;
}

void Markov::MarkEnds(Split split, const SampleKey& key, absl::Span<const int32_t> /*window*/,
                      absl::Span<uint8_t> ends) const {
  int64_t end = 0;
  for (const int64_t length : Lengths(split, key, std::ssize(ends))) {
    end += length;
    ends[static_cast<size_t>(end - 1)] = 1;
  }
}

std::optional<double> Markov::loss_floor() const {
  if (packs_documents()) return std::nullopt;
  return source_.LossFloor(context());
}

}  // namespace lockstep
