#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/base/philox.h"
#include "core/data/token_dataset.h"

namespace lockstep {

struct CopiesOptions {
  int64_t slots = 64;       // runs of a passage, each of one token
  int64_t values = 8;       // that the token of a run may have
  int64_t repeats = 16;     // how often a run has its token
  int64_t distance = 2048;  // from the beginning of a passage to that of its copy
  int64_t context = 4096;   // tokens that the model sees at once
  uint64_t seed = 0;
  int64_t train_samples = int64_t{1} << 40;
  int64_t validation_samples = 16;
};

// A built-in data set whose structure lies far apart: a text begins with a random passage, which
// comes again at `distance`; between lies filler. A passage is `slots` runs of one token each. Run
// r draws its token evenly from `values` tokens of its own, so that a token says which run it is.
// Vocabulary: the filler 0, and slots * values others.
//
// A text is two distances long, cut into windows of `context` tokens: sample i is window
// i % (2 * distance / context) of text i / (2 * distance / context). A model that sees the whole
// text can copy the second passage; one whose context is at most the distance sees nothing that
// tells the token of a run before it begins, and pays ln(values) for each run, whatever it learns:
// see loss_floor().
class Copies final : public TokenDataset {
 public:
  // InvalidArgument where a passage does not fit into the distance, the context does not divide
  // two distances, or a split is empty.
  static absl::StatusOr<std::shared_ptr<const Copies>> Create(const CopiesOptions& options);

  std::string Describe() const override;
  int64_t classes() const override { return 1 + options_.slots * options_.values; }
  int64_t size(Split split) const override;
  // ln(values) for each target that begins a run and has no copy in the window before it, over all
  // targets of a text.
  std::optional<double> loss_floor() const override;

 protected:
  absl::Status FillWindow(Split split, const SampleKey& key,
                          absl::Span<int32_t> window) const override;

 private:
  explicit Copies(const CopiesOptions& options);
  int64_t passage() const { return options_.slots * options_.repeats; }  // tokens
  int64_t windows() const { return 2 * options_.distance / options_.context; }

  CopiesOptions options_;
  Philox train_, validation_;
};

}  // namespace lockstep
