#include "tools/generate/text_codec.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/status.h"
#include "core/data/markov.h"
#include "core/data/text.h"
#include "core/text/utf8.h"

namespace lockstep {
namespace {

using Tokens = std::vector<int32_t>;

class BytePairCodec : public TextCodec {
 public:
  explicit BytePairCodec(BytePairs pairs) : pairs_(std::move(pairs)) {}

  absl::StatusOr<Tokens> Encode(const std::string& text) const override {
    return pairs_.Encode(text);
  }
  std::string Decode(absl::Span<const int32_t> tokens) const override {
    return pairs_.Decode(tokens);
  }
  std::optional<int32_t> document_border() const override { return pairs_.end_of_text(); }

 private:
  BytePairs pairs_;
};

class CharacterCodec : public TextCodec {
 public:
  explicit CharacterCodec(const CharacterVocabulary& vocabulary) : vocabulary_(vocabulary) {}

  absl::StatusOr<Tokens> Encode(const std::string& text) const override {
    LS_ASSIGN_OR_RETURN(const std::u32string characters, DecodeUtf8(text));
    Tokens tokens;
    for (const char32_t character : characters) {
      const std::optional<int32_t> token = vocabulary_.Token(character);
      if (!token) {
        return absl::InvalidArgumentError(
            absl::StrCat("the model knows no character ", DescribeCharacter(character),
                         "; its text had ", vocabulary_.size(), " others"));
      }
      tokens.push_back(*token);
    }
    return tokens;
  }
  std::string Decode(absl::Span<const int32_t> tokens) const override {
    return vocabulary_.Decode(tokens);
  }

 private:
  const CharacterVocabulary& vocabulary_;
};

constexpr int64_t kLetters = 26;

class LetterCodec : public TextCodec {
 public:
  explicit LetterCodec(int64_t letters) : letters_(letters) {}

  absl::StatusOr<Tokens> Encode(const std::string& text) const override {
    Tokens tokens;
    for (const char letter : text) {
      const int32_t token = letter - 'a';
      if (token < 0 || token >= letters_) {
        return absl::InvalidArgumentError(
            absl::StrCat("the model knows the letters a to ",
                         std::string(1, static_cast<char>('a' + letters_ - 1)), " only"));
      }
      tokens.push_back(token);
    }
    return tokens;
  }
  std::string Decode(absl::Span<const int32_t> tokens) const override {
    std::string text;
    for (const int32_t token : tokens) text.push_back(static_cast<char>('a' + token));
    return text;
  }

 private:
  int64_t letters_;
};

class NumberCodec : public TextCodec {
 public:
  explicit NumberCodec(int64_t vocabulary) : vocabulary_(vocabulary) {}

  absl::StatusOr<Tokens> Encode(const std::string& text) const override {
    Tokens tokens;
    for (const std::string& word :
         std::vector<std::string>(absl::StrSplit(text, ' ', absl::SkipEmpty()))) {
      int32_t token = 0;
      if (!absl::SimpleAtoi(word, &token) || token < 0 || token >= vocabulary_) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the model knows the numbers 0 to ", vocabulary_ - 1, " only, with blanks between"));
      }
      tokens.push_back(token);
    }
    return tokens;
  }
  std::string Decode(absl::Span<const int32_t> tokens) const override {
    std::string text;
    for (const int32_t token : tokens) absl::StrAppend(&text, token, " ");
    return text;
  }

 private:
  int64_t vocabulary_;
};

}  // namespace

std::unique_ptr<TextCodec> MakeBytePairCodec(BytePairs pairs) {
  return std::make_unique<BytePairCodec>(std::move(pairs));
}

absl::StatusOr<std::unique_ptr<TextCodec>> MakeCodecOf(const Dataset& dataset) {
  std::unique_ptr<TextCodec> codec;
  if (const auto* text = dynamic_cast<const Text*>(&dataset)) {
    codec = std::make_unique<CharacterCodec>(text->vocabulary());
  } else if (dynamic_cast<const Markov*>(&dataset) != nullptr) {
    if (dataset.classes() <= kLetters) {
      codec = std::make_unique<LetterCodec>(dataset.classes());
    } else {
      codec = std::make_unique<NumberCodec>(dataset.classes());
    }
  } else {
    return absl::FailedPreconditionError(
        absl::StrCat("what the tokens mean is not known from the data (", dataset.Describe(),
                     "): name the folder of its byte-pair vocabulary with --bpe"));
  }
  return codec;
}

}  // namespace lockstep
