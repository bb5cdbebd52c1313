#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/data/running_text.h"
#include "core/data/token_stream.h"
#include "core/text/vocabulary.h"

namespace lockstep {

struct TextOptions {
  enum class Vocabulary {
    kTrain,  // the characters of the training split: one that only validation has is an error
    kAll,    // the characters of the whole file, as nanoGPT has it
  };

  std::string path = "tinyshakespeare/input.txt";  // under the data directory, or absolute
  int64_t context = 64;                            // tokens that the model sees at once
  Vocabulary vocabulary = Vocabulary::kTrain;
  // Files, under the data directory or absolute, whose characters all of them together make the
  // vocabulary, in place of `vocabulary`. A model that is to be adapted to another text needs one
  // that covers both, from the start.
  std::vector<std::string> vocabulary_of = {};
  // The character that ends each document, in UTF-8; empty: all is one document.
  std::string separator = {};
};

// Character-level text from one UTF-8 file: the first nine tenths of its characters are for
// training, the rest is for validation, as in nanoGPT's shakespeare_char. (There the two
// vocabularies of TextOptions are the same 65 characters.)
class Text final : public RunningText {
 public:
  // The error names the file and says what is wrong with it: missing (and where to get it), empty,
  // no UTF-8, too short for the context, or an unknown character (which, and at which byte). So of
  // the files that make the vocabulary.
  static absl::StatusOr<std::shared_ptr<const Text>> Load(const std::string& data_directory,
                                                          const TextOptions& options);

  std::string Describe() const override;
  int64_t classes() const override { return vocabulary_.size(); }
  // Characters of a split.
  int64_t tokens(Split split) const override { return stream(split).size(); }
  std::optional<uint64_t> file_checksum() const override;

  const CharacterVocabulary& vocabulary() const { return vocabulary_; }

 protected:
  absl::Status CopyTokens(Split split, int64_t begin, absl::Span<int32_t> window) const override;

 private:
  Text(const std::string& path, int64_t context, CharacterVocabulary vocabulary,
       std::optional<int32_t> separator);

  const TokenStream& stream(Split split) const {
    return split == Split::kTrain ? train_ : validation_;
  }

  std::string path_;
  CharacterVocabulary vocabulary_;
  TokenStream train_;
  TokenStream validation_;
};

}  // namespace lockstep
