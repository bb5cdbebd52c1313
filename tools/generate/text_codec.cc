#include "tools/generate/text_codec.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/status.h"
#include "core/data/markov.h"
#include "core/data/running_text.h"
#include "core/data/text.h"
#include "core/text/utf8.h"

namespace lockstep {
namespace {

using Tokens = std::vector<int32_t>;

constexpr int64_t kLetters = 26;

absl::StatusOr<Tokens> EncodeCharacters(const CharacterVocabulary& vocabulary,
                                        const std::string& text) {
  LS_ASSIGN_OR_RETURN(const std::u32string characters, DecodeUtf8(text));
  Tokens tokens;
  for (const char32_t character : characters) {
    const std::optional<int32_t> token = vocabulary.Token(character);
    if (!token) {
      return InvalidArgument("the model knows no character ", DescribeCharacter(character),
                             "; its text had ", vocabulary.size(), " others");
    }
    tokens.push_back(*token);
  }
  return tokens;
}

absl::StatusOr<Tokens> EncodeLetters(int64_t letters, const std::string& text) {
  Tokens tokens;
  for (const char letter : text) {
    const int32_t token = letter - 'a';
    if (token < 0 || token >= letters) {
      return InvalidArgument("the model knows the letters a to ",
                             std::string(1, static_cast<char>('a' + letters - 1)), " only");
    }
    tokens.push_back(token);
  }
  return tokens;
}

std::string DecodeLetters(absl::Span<const int32_t> tokens) {
  std::string text;
  for (const int32_t token : tokens) text.push_back(static_cast<char>('a' + token));
  return text;
}

absl::StatusOr<Tokens> EncodeNumbers(int64_t vocabulary, const std::string& text) {
  Tokens tokens;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    int32_t token = 0;
    if (!absl::SimpleAtoi(word, &token) || token < 0 || token >= vocabulary) {
      return InvalidArgument("the model knows the numbers 0 to ", vocabulary - 1,
                             " only, with blanks between");
    }
    tokens.push_back(token);
  }
  return tokens;
}

std::string DecodeNumbers(absl::Span<const int32_t> tokens) {
  std::string text;
  for (const int32_t token : tokens) absl::StrAppend(&text, token, " ");
  return text;
}

}  // namespace

TextCodec MakeBytePairCodec(BytePairs pairs) {
  const auto shared = std::make_shared<const BytePairs>(std::move(pairs));
  return {.encode = [shared](const std::string& text) { return shared->Encode(text); },
          .decode = [shared](absl::Span<const int32_t> tokens) { return shared->Decode(tokens); },
          .document_border = shared->end_of_text()};
}

absl::StatusOr<TextCodec> MakeCodecOf(const Dataset& dataset) {
  const int64_t classes = dataset.classes();
  if (const auto* text = dynamic_cast<const Text*>(&dataset)) {
    const CharacterVocabulary* vocabulary = &text->vocabulary();
    return TextCodec{
        .encode = [=](const std::string& words) { return EncodeCharacters(*vocabulary, words); },
        .decode = [=](absl::Span<const int32_t> tokens) { return vocabulary->Decode(tokens); }};
  }
  if (dynamic_cast<const Markov*>(&dataset) == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("what the tokens mean is not known from the data (", dataset.Describe(),
                     "): name the folder of its byte-pair vocabulary with --bpe"));
  }
  if (classes <= kLetters) {
    return TextCodec{
        .encode = [=](const std::string& text) { return EncodeLetters(classes, text); },
        .decode = DecodeLetters};
  }
  return TextCodec{.encode = [=](const std::string& text) { return EncodeNumbers(classes, text); },
                   .decode = DecodeNumbers};
}

std::optional<int32_t> SeparatorOf(const Dataset& dataset) {
  const auto* text = dynamic_cast<const RunningText*>(&dataset);
  return text == nullptr ? std::nullopt : text->separator();
}

absl::StatusOr<std::vector<int32_t>> LastDocument(const std::vector<int32_t>& text,
                                                  int32_t separator) {
  const auto behind = std::find(text.rbegin(), text.rend(), separator).base();
  if (behind != text.end()) return Tokens(behind, text.end());
  return absl::InvalidArgumentError(
      "no token of a document is there to continue: the model was trained on packed documents "
      "(data.separator), none of whose tokens sees the document before; give at least one token "
      "behind the last separator");
}

}  // namespace lockstep
