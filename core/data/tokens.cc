#include "core/data/tokens.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/data/data_file.h"

namespace lockstep {

absl::StatusOr<std::shared_ptr<const Tokens>> Tokens::Load(const std::string& data_directory,
                                                           const TokensOptions& options) {
  if (options.context < 1) {
    return InvalidArgument("the context must be at least 1 token, but is ", options.context);
  }
  absl::StatusOr<TokenFile> file = TokenFile::Open(DataPath(data_directory, options.path));
  if (absl::IsNotFound(file.status())) {
    return absl::NotFoundError(absl::StrCat(file.status().message(),
                                            ". //tools/tokenize makes such a file from text. ",
                                            HowToNameTheDirectory(data_directory)));
  }
  if (!file.ok()) return file.status();
  if (options.separator >= file->vocabulary()) {
    return InvalidArgument("data.separator is token ", options.separator, ", but \"", file->path(),
                           "\" has a vocabulary of ", file->vocabulary(),
                           "; name the token that ends its documents");
  }
  std::shared_ptr<const Tokens> dataset(new Tokens(options, *std::move(file)));
  const int64_t train = dataset->tokens(Split::kTrain);
  const int64_t validation = dataset->tokens(Split::kValidation);
  if (train <= options.context || validation <= options.context) {
    return InvalidArgument(
        "\"", dataset->file_.path(), "\" is too short: it has ", train, " tokens for training and ",
        validation, " for validation, but a context of ", options.context, " needs ",
        options.context + 1, " of each. Use a longer text or a smaller context.");
  }
  return dataset;
}

Tokens::Tokens(const TokensOptions& options, TokenFile file)
    : RunningText(options.context, options.separator < 0
                                       ? std::nullopt
                                       : std::optional(static_cast<int32_t>(options.separator))),
      file_(std::move(file)) {}

std::string Tokens::Describe() const {
  return absl::StrCat("tokens \"", file_.path(), "\": ", tokens(Split::kTrain), " training and ",
                      tokens(Split::kValidation), " validation tokens, vocabulary of ",
                      file_.vocabulary());
}

int64_t Tokens::tokens(Split split) const {
  return split == Split::kTrain ? file_.train_tokens() : file_.tokens() - file_.train_tokens();
}

absl::Status Tokens::CopyTokens(Split split, int64_t begin, absl::Span<int32_t> window) const {
  return file_.Copy(split == Split::kTrain ? begin : file_.train_tokens() + begin, window);
}

}  // namespace lockstep
