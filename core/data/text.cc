#include "core/data/text.h"

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>  // std::move

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/data/data_file.h"
#include "core/text/utf8.h"

namespace lockstep {
namespace {

std::string WhereToGetIt(const std::string& path) {
  if (absl::StrContains(path, "tinyshakespeare")) {
    return "The text is one file, data/tinyshakespeare/input.txt of "
           "https://github.com/karpathy/char-rnn.";
  }
  return "It is to be a UTF-8 text file.";
}

// The characters of a file, and its path as messages show it.
struct File {
  std::string path;
  std::u32string characters;
};

absl::StatusOr<File> ReadText(const std::string& data_directory, const std::string& relative) {
  LS_ASSIGN_OR_RETURN(const std::string contents,
                      ReadDataFile(data_directory, relative, WhereToGetIt(relative)));
  File file = {.path = absl::StrCat("\"", DataPath(data_directory, relative), "\""),
               .characters = {}};
  if (contents.empty()) {
    return InvalidArgument(file.path, " is empty. ", WhereToGetIt(relative), " ",
                           HowToNameTheDirectory(data_directory));
  }
  absl::StatusOr<std::u32string> characters = DecodeUtf8(contents);
  if (!characters.ok()) return Annotate(characters.status(), file.path);
  file.characters = *std::move(characters);
  return file;
}

absl::StatusOr<CharacterVocabulary> VocabularyOf(const std::string& data_directory,
                                                 const TextOptions& options,
                                                 std::u32string_view whole,
                                                 std::u32string_view train) {
  if (options.vocabulary_of.empty()) {
    return CharacterVocabulary(options.vocabulary == TextOptions::Vocabulary::kAll ? whole : train);
  }
  std::u32string all;
  for (const std::string& relative : options.vocabulary_of) {
    LS_ASSIGN_OR_RETURN(const File file, ReadText(data_directory, relative));
    // What is distinct is enough, so that no more than one file is held.
    all += CharacterVocabulary(file.characters).characters();
  }
  return CharacterVocabulary(all);
}

// The token of the character that ends documents; none where `separator` is empty.
absl::StatusOr<std::optional<int32_t>> SeparatorOf(const std::string& separator,
                                                   const CharacterVocabulary& vocabulary) {
  if (separator.empty()) return std::nullopt;
  const absl::StatusOr<std::u32string> characters = DecodeUtf8(separator);
  if (!characters.ok() || characters->size() != 1) {
    return absl::InvalidArgumentError(
        "data.separator must be one character, the one that ends each document");
  }
  const std::optional<int32_t> token = vocabulary.Token((*characters)[0]);
  if (!token) {
    return InvalidArgument("data.separator is ", DescribeCharacter((*characters)[0]),
                           ", which does not occur in the text; name a character that ends its "
                           "documents, or leave it out");
  }
  return token;
}

// Where a character is missing, and what to do about it.
std::string HowToHaveAll(const TextOptions& options) {
  return options.vocabulary_of.empty()
             ? ", in the validation split (the last tenth), does not occur in the training split, "
               "so the model has no token for it; take it out, or take the vocabulary from the "
               "whole text (vocabulary \"all\")"
             : " occurs in none of the files that vocabulary_of names, so the model has no token "
               "for it; name this file too, in the configuration of the model that is adapted as "
               "well, or take the character out";
}

// Appends the tokens of `text`; an unknown character is an error that gives its place in the file.
absl::Status Encode(std::u32string_view text, const CharacterVocabulary& vocabulary,
                    const std::string& how_to_have_all, TokenStream& stream, size_t byte_offset) {
  stream.Reserve(static_cast<int64_t>(text.size()));
  for (char32_t character : text) {
    const std::optional<int32_t> token = vocabulary.Token(character);
    if (!token.has_value()) {
      return InvalidArgument("character ", DescribeCharacter(character), " at byte offset ",
                             byte_offset, how_to_have_all);
    }
    stream.Append(*token);
    byte_offset += Utf8Bytes(character);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Text>> Text::Load(const std::string& data_directory,
                                                       const TextOptions& options) {
  if (options.context < 1) {
    return InvalidArgument("the context must be at least 1 token, but is ", options.context);
  }
  LS_ASSIGN_OR_RETURN(const File file, ReadText(data_directory, options.path));
  const std::u32string_view whole = file.characters;

  // The training split is the longer one. The product cannot overflow: the text is in memory.
  const size_t boundary = whole.size() * 9 / 10;
  const std::u32string_view train = whole.substr(0, boundary);
  const std::u32string_view validation = whole.substr(boundary);
  const size_t needed = static_cast<size_t>(options.context) + 1;
  if (validation.size() < needed || train.size() < needed) {
    return InvalidArgument(
        file.path, " is too short: of its ", whole.size(), " characters the last tenth, ",
        validation.size(), ", is for validation, where a context of ", options.context, " needs ",
        needed, ". Use a longer text (", 10 * needed, " characters do) or a smaller context.");
  }

  LS_ASSIGN_OR_RETURN(CharacterVocabulary vocabulary,
                      VocabularyOf(data_directory, options, whole, train));
  LS_ASSIGN_OR_RETURN(const std::optional<int32_t> separator,
                      SeparatorOf(options.separator, vocabulary));
  std::shared_ptr<Text> dataset(new Text(DataPath(data_directory, options.path), options.context,
                                         std::move(vocabulary), separator));
  const auto encode = [&](std::u32string_view text, TokenStream& stream, size_t byte_offset) {
    return Annotate(Encode(text, dataset->vocabulary_, HowToHaveAll(options), stream, byte_offset),
                    file.path);
  };
  LS_RETURN_IF_ERROR(encode(train, dataset->train_, 0));
  size_t train_bytes = 0;
  for (char32_t character : train) train_bytes += Utf8Bytes(character);
  LS_RETURN_IF_ERROR(encode(validation, dataset->validation_, train_bytes));
  return std::shared_ptr<const Text>(std::move(dataset));
}

Text::Text(const std::string& path, int64_t context, CharacterVocabulary vocabulary,
           std::optional<int32_t> separator)
    : RunningText(context, separator),
      path_(path),
      vocabulary_(std::move(vocabulary)),
      train_(vocabulary_.size()),
      validation_(vocabulary_.size()) {}

std::string Text::Describe() const {
  return absl::StrCat("text \"", path_, "\": ", tokens(Split::kTrain), " training and ",
                      tokens(Split::kValidation), " validation characters, ", vocabulary_.size(),
                      " distinct");
}

std::optional<uint64_t> Text::file_checksum() const {
  return train_.Checksum(0) + validation_.Checksum(train_.size());
}

absl::Status Text::CopyTokens(Split split, int64_t begin, absl::Span<int32_t> window) const {
  stream(split).CopyWindow(begin, window);
  return absl::OkStatus();
}

}  // namespace lockstep
