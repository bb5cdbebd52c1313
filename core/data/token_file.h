// Token ids on the disk, made by //tools/tokenize:
//
//   bytes  0- 7  "lstokens"
//          8-11  version of the format: 3
//         12-15  bytes of a token: 2 for vocabularies up to 65,536, else 4
//         16-23  size of the vocabulary, of which all ids are below
//         24-31  tokens
//         32-39  how many of them, the first, are for training; the rest is for validation
//         40-47  checksum of the tokens, from index 0 on (core/base/checksum.h)
//         48-55  checksum of bytes 0 to 47
//         56-63  zeros
//         64-    the tokens
//
// All numbers are unsigned and little-endian. Files of earlier versions are read. They have zeros
// in place of what they lack: version 2 the checksum of bytes 0 to 47, version 1 both checksums. A
// damaged size of the vocabulary, or number of tokens for training, shows only from version 3 on.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/mapped_file.h"

namespace lockstep {

// What such a file begins with.
inline constexpr char kTokenFileBeginning[] = "lstokens";

// An open file of tokens, mapped into memory: after one pass over it, a file of any size costs what
// is looked at.
class TokenFile {
 public:
  // InvalidArgument, with the file's name, for what is no such file: another beginning, version or
  // size of tokens, counts that disagree with its length; and for a token outside of the
  // vocabulary. DataLoss for a header or tokens that are not those that were written, also where
  // the damage has put a token outside of the vocabulary.
  static absl::StatusOr<TokenFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  int64_t vocabulary() const { return vocabulary_; }
  int64_t tokens() const { return tokens_; }
  int64_t train_tokens() const { return train_tokens_; }
  // The checksum of the tokens.
  uint64_t checksum() const { return checksum_; }

  // Copies tokens begin, ..., begin + out.size() - 1, which must be there. InvalidArgument if one
  // is outside of the vocabulary.
  absl::Status Copy(int64_t begin, absl::Span<int32_t> out) const;

 private:
  TokenFile(std::string path, MappedFile file);

  absl::Status ReadHeader();
  absl::Status CheckTokens();
  // DataLoss that names the file, `what` is wrong with it, and the remedy.
  absl::Status Damaged(absl::string_view what) const;

  std::string path_;
  MappedFile file_;
  int64_t token_bytes_ = 0;
  int64_t vocabulary_ = 0;
  int64_t tokens_ = 0;
  int64_t train_tokens_ = 0;
  uint64_t checksum_ = 0;
  std::optional<uint64_t> stored_checksum_;
};

// Writes such a file; it appears under its name when it is whole. Requires a vocabulary in
// [1, 2^31] that all tokens are below.
absl::Status WriteTokenFile(const std::string& path, int64_t vocabulary,
                            absl::Span<const int32_t> train, absl::Span<const int32_t> validation);

}  // namespace lockstep
