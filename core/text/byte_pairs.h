// GPT-2's tokenizer: text as byte pairs.
//
//   LS_ASSIGN_OR_RETURN(const BytePairs pairs, BytePairs::Load("gpt2-bpe"));
//   const std::vector<int32_t> tokens = pairs.Encode("Hello world");  // 15496, 995
//   pairs.Decode(tokens);                                             // "Hello world"

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lockstep {

// The byte-level byte-pair encoding of GPT-2 (Radford et al., "Language Models are Unsupervised
// Multitask Learners", 2019, section 2.2): a text is cut into words (core/text/words.h), each word
// into bytes, and then the pair of neighbours that the list of merges names first becomes one
// token, everywhere in the word from left to right, until no pair is left that the list names.
//
// Any bytes can be encoded, and come back exactly, whether they are UTF-8 or not. What a text says
// about special tokens is text like any other: "<|endoftext|>" is never encoded as that token.
// Immutable once loaded: threads may share one.
class BytePairs {
 public:
  // Reads the two files that GPT-2 was published with: encoder.json maps tokens to ids, vocab.bpe
  // has a line for each merge, the first first. In both, bytes are written as the characters of
  // GPT-2's alphabet, among them U+0120 for a blank. An error names the file, and what is wrong
  // with it: ids that are not 0, 1, ... each once, a token outside of the alphabet, a byte without
  // a token, a line that is no pair, comes twice, or names or makes what is no token.
  static absl::StatusOr<BytePairs> Load(const std::string& directory);

  // Ids lie in [0, vocabulary()): 50257 for GPT-2.
  int64_t vocabulary() const { return static_cast<int64_t>(tokens_.size()); }

  // The token that stands between documents, "<|endoftext|>"; nothing if the vocabulary has none.
  std::optional<int32_t> end_of_text() const { return end_of_text_; }

  // Some ten million bytes a second on a core; O(n log n) in the longest word.
  std::vector<int32_t> Encode(std::string_view text) const;
  // The same for a single word as FirstWordBytes cuts it, appended to `tokens`.
  void AppendWord(std::string_view word, std::vector<int32_t>& tokens) const;

  // The bytes of some tokens. A character may be spread over several, so those of a part of a text
  // may begin or end inside of one. Requires each in [0, vocabulary()).
  std::string Decode(absl::Span<const int32_t> tokens) const;

 private:
  struct Merge {
    int32_t rank;   // its place in the list
    int32_t token;  // that the pair becomes
  };

  BytePairs() = default;

  absl::Status ParseTokens(const std::string& json);
  absl::Status ParseMerges(std::string_view lines);
  const Merge* Find(int32_t left, int32_t right) const;

  std::vector<std::string> tokens_;             // the bytes of each
  std::array<int32_t, 256> byte_tokens_;        // of single bytes
  std::unordered_map<uint64_t, Merge> merges_;  // by PairKey
  std::optional<int32_t> end_of_text_;
};

}  // namespace lockstep
