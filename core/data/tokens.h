#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/data/running_text.h"
#include "core/data/token_file.h"

namespace lockstep {

struct TokensOptions {
  std::string path;      // under the data directory, or absolute
  int64_t context = 64;  // tokens that the model sees at once
  // The token that ends each document, as <|endoftext|> of GPT-2, 50256; -1: all is one document.
  int64_t separator = -1;
};

// Text as token ids in a file (core/data/token_file.h), which stays on the disk.
class Tokens final : public RunningText {
 public:
  // The error names the file and says what is wrong with it: missing, no file of tokens, or too
  // short for the context.
  static absl::StatusOr<std::shared_ptr<const Tokens>> Load(const std::string& data_directory,
                                                            const TokensOptions& options);

  std::string Describe() const override;
  int64_t classes() const override { return file_.vocabulary(); }
  int64_t tokens(Split split) const override;
  std::optional<uint64_t> file_checksum() const override { return file_.checksum(); }

 protected:
  absl::Status CopyTokens(Split split, int64_t begin, absl::Span<int32_t> window) const override;

 private:
  Tokens(const TokensOptions& options, TokenFile file);

  TokenFile file_;
};

}  // namespace lockstep
