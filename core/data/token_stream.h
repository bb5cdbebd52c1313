#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "absl/types/span.h"

namespace lockstep {

// A sequence of token ids, kept in the smallest integer type that holds the vocabulary: 1 byte a
// token up to 256 of them, 2 bytes up to 65,536 (GPT-2's 50,257 among them), else 4.
class TokenStream {
 public:
  // An empty stream for tokens in [0, vocabulary). Requires vocabulary >= 1.
  explicit TokenStream(int64_t vocabulary);

  void Reserve(int64_t tokens);
  // Requires token in [0, vocabulary).
  void Append(int32_t token);

  int64_t size() const;
  int64_t bytes_per_token() const;

  // Copies tokens begin, ..., begin + window.size() - 1. Requires them to be there.
  void CopyWindow(int64_t begin, absl::Span<int32_t> window) const;

  // The checksum (core/base/checksum.h) of the tokens, as part of a stream where the first of them
  // has the index `first`.
  uint64_t Checksum(int64_t first) const;

 private:
  int64_t vocabulary_;
  std::variant<std::vector<uint8_t>, std::vector<uint16_t>, std::vector<int32_t>> tokens_;
};

}  // namespace lockstep
