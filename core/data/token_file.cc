#include "core/data/token_file.h"

#include <algorithm>
#include <bit>  // std::endian
#include <cstddef>
#include <cstring>   // std::memcmp, std::memcpy
#include <iterator>  // std::begin
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr uint32_t kVersion = 1;
constexpr int64_t kLargestVocabulary = int64_t{1} << 31;

struct Header {
  char magic[sizeof(kTokenFileBeginning) - 1];
  uint32_t version;
  uint32_t token_bytes;
  uint64_t vocabulary;
  uint64_t tokens;
  uint64_t train_tokens;
  uint64_t reserved[3];
};
static_assert(sizeof(Header) == 64);

uint32_t TokenBytes(uint64_t vocabulary) { return vocabulary <= 65536 ? 2 : 4; }

template <typename T>
absl::Status AppendTokens(absl::Span<const int32_t> tokens, int64_t vocabulary,
                          AtomicFileWriter& file) {
  constexpr size_t kTogether = 1 << 16;
  std::vector<T> part;
  for (size_t begin = 0; begin < tokens.size(); begin += kTogether) {
    const absl::Span<const int32_t> some = tokens.subspan(begin, kTogether);
    part.clear();
    for (const int32_t token : some) {
      CHECK(token >= 0 && token < vocabulary) << token;
      part.push_back(static_cast<T>(token));
    }
    LS_RETURN_IF_ERROR(
        file.Append({reinterpret_cast<const char*>(part.data()), part.size() * sizeof(T)}));
  }
  return absl::OkStatus();
}

template <typename T>
void CopyAs(std::span<const std::byte> bytes, absl::Span<int32_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    T token;
    std::memcpy(&token, bytes.data() + i * sizeof(T), sizeof(T));
    out[i] = static_cast<int32_t>(token);  // what does not fit becomes negative
  }
}

// The largest token, a number of type T; 0 where there are none.
template <typename T>
uint32_t Largest(std::span<const std::byte> bytes) {
  T largest = 0;
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T token;
    std::memcpy(&token, bytes.data() + at, sizeof(T));
    largest = std::max(largest, token);
  }
  return largest;
}

}  // namespace

absl::StatusOr<TokenFile> TokenFile::Open(const std::string& path) {
  LS_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  TokenFile file(path, std::move(mapped));
  const absl::Status status = file.ReadHeader();
  if (status.ok()) {
    LS_RETURN_IF_ERROR(file.CheckTokens());
    return file;
  }
  return absl::Status(status.code(),
                      absl::StrCat("\"", path, "\" is no file of tokens: ", status.message(),
                                   "; //tools/tokenize makes one from text"));
}

TokenFile::TokenFile(std::string path, MappedFile file)
    : path_(std::move(path)), file_(std::move(file)) {}

absl::Status TokenFile::ReadHeader() {
  const auto invalid = [](const auto&... parts) { return InvalidArgument(parts...); };
  const std::span<const std::byte> bytes = file_.bytes();
  Header header;
  if (bytes.size() < sizeof(header)) return invalid("it has only ", bytes.size(), " bytes");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, kTokenFileBeginning, sizeof(header.magic)) != 0) {
    return invalid("it does not begin with \"", absl::string_view(kTokenFileBeginning), "\"");
  }
  if (header.version != kVersion) {
    return invalid("its version is ", header.version, ", but only ", kVersion, " is known");
  }
  if (header.vocabulary < 1 || header.vocabulary > static_cast<uint64_t>(kLargestVocabulary)) {
    return invalid("its vocabulary has ", header.vocabulary, " tokens, not 1 to 2^31");
  }
  const uint32_t token_bytes = TokenBytes(header.vocabulary);
  if (header.token_bytes != token_bytes) {
    return invalid("its tokens have ", header.token_bytes, " bytes, but a vocabulary of ",
                   header.vocabulary, " takes ", token_bytes);
  }
  const uint64_t room = bytes.size() - sizeof(header);
  if (header.tokens > room / token_bytes || header.tokens * token_bytes != room) {
    return invalid("its ", header.tokens, " tokens of ", token_bytes, " bytes do not fill the ",
                   room, " bytes behind its header: it was cut, or something was added");
  }
  if (header.train_tokens > header.tokens) {
    return invalid("of its ", header.tokens, " tokens ", header.train_tokens, " are for training");
  }
  if (std::any_of(std::begin(header.reserved), std::end(header.reserved),
                  [](uint64_t word) { return word != 0; })) {
    return invalid("bytes 40 to 63 are not zero");
  }
  token_bytes_ = token_bytes;
  vocabulary_ = static_cast<int64_t>(header.vocabulary);
  tokens_ = static_cast<int64_t>(header.tokens);
  train_tokens_ = static_cast<int64_t>(header.train_tokens);
  return absl::OkStatus();
}

absl::Status TokenFile::CheckTokens() const {
  const std::span<const std::byte> bytes = file_.bytes().subspan(sizeof(Header));
  const uint32_t largest = token_bytes_ == 2 ? Largest<uint16_t>(bytes) : Largest<uint32_t>(bytes);
  if (tokens_ == 0 || largest < static_cast<uint64_t>(vocabulary_)) return absl::OkStatus();
  // Which one it is, in parts that fit into memory.
  constexpr int64_t kTogether = 1 << 16;
  std::vector<int32_t> part;
  for (int64_t begin = 0; begin < tokens_; begin += kTogether) {
    part.resize(static_cast<size_t>(std::min(kTogether, tokens_ - begin)));
    LS_RETURN_IF_ERROR(Copy(begin, absl::MakeSpan(part)));
  }
  return absl::OkStatus();
}

absl::Status TokenFile::Copy(int64_t begin, absl::Span<int32_t> out) const {
  CHECK_GE(begin, 0);
  CHECK_LE(begin + static_cast<int64_t>(out.size()), tokens_);
  const std::span<const std::byte> bytes =
      file_.bytes().subspan(sizeof(Header) + static_cast<size_t>(begin * token_bytes_));
  token_bytes_ == 2 ? CopyAs<uint16_t>(bytes, out) : CopyAs<uint32_t>(bytes, out);
  const auto wrong = std::find_if(
      out.begin(), out.end(), [this](int32_t token) { return token < 0 || token >= vocabulary_; });
  if (wrong == out.end()) return absl::OkStatus();
  return InvalidArgument("\"", path_, "\": token ", begin + (wrong - out.begin()), " is ",
                         static_cast<uint32_t>(*wrong), ", outside of the vocabulary of ",
                         vocabulary_);
}

absl::Status WriteTokenFile(const std::string& path, int64_t vocabulary,
                            absl::Span<const int32_t> train, absl::Span<const int32_t> validation) {
  CHECK(vocabulary >= 1 && vocabulary <= kLargestVocabulary) << vocabulary;
  Header header = {.magic = {},
                   .version = kVersion,
                   .token_bytes = TokenBytes(static_cast<uint64_t>(vocabulary)),
                   .vocabulary = static_cast<uint64_t>(vocabulary),
                   .tokens = train.size() + validation.size(),
                   .train_tokens = train.size(),
                   .reserved = {}};
  std::memcpy(header.magic, kTokenFileBeginning, sizeof(header.magic));
  LS_ASSIGN_OR_RETURN(AtomicFileWriter file, AtomicFileWriter::Open(path));
  LS_RETURN_IF_ERROR(file.Append({reinterpret_cast<const char*>(&header), sizeof(header)}));
  for (const absl::Span<const int32_t> tokens : {train, validation}) {
    LS_RETURN_IF_ERROR(header.token_bytes == 2 ? AppendTokens<uint16_t>(tokens, vocabulary, file)
                                               : AppendTokens<uint32_t>(tokens, vocabulary, file));
  }
  return file.Commit();
}

}  // namespace lockstep
