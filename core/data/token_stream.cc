#include "core/data/token_stream.h"

#include <algorithm>  // std::copy_n
#include <span>
#include <type_traits>

#include "core/base/checksum.h"
#include "glog/logging.h"

namespace lockstep {

TokenStream::TokenStream(int64_t vocabulary) : vocabulary_(vocabulary) {
  CHECK_GE(vocabulary, 1);
  if (vocabulary <= 256) {
    tokens_ = std::vector<uint8_t>();
  } else if (vocabulary <= 65536) {
    tokens_ = std::vector<uint16_t>();
  } else {
    tokens_ = std::vector<int32_t>();
  }
}

void TokenStream::Reserve(int64_t tokens) {
  std::visit([tokens](auto& stream) { stream.reserve(tokens); }, tokens_);
}

void TokenStream::Append(int32_t token) {
  DCHECK(token >= 0 && token < vocabulary_) << token;
  std::visit(
      [token](auto& stream) {
        using Element = typename std::decay_t<decltype(stream)>::value_type;
        stream.push_back(static_cast<Element>(token));
      },
      tokens_);
}

int64_t TokenStream::size() const {
  return std::visit([](const auto& stream) { return static_cast<int64_t>(stream.size()); },
                    tokens_);
}

int64_t TokenStream::bytes_per_token() const {
  return std::visit([](const auto& stream) { return static_cast<int64_t>(sizeof(stream[0])); },
                    tokens_);
}

void TokenStream::CopyWindow(int64_t begin, absl::Span<int32_t> window) const {
  const int64_t length = static_cast<int64_t>(window.size());
  CHECK_GE(begin, 0);
  CHECK_LE(begin + length, size());
  std::visit(
      [&](const auto& stream) { std::copy_n(stream.begin() + begin, length, window.begin()); },
      tokens_);
}

uint64_t TokenStream::Checksum(int64_t first) const {
  return std::visit(
      [first](const auto& stream) {
        return ChecksumOf(sizeof(stream[0]), first, std::as_bytes(std::span(stream)));
      },
      tokens_);
}

}  // namespace lockstep
