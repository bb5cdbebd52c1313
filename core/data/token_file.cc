#include "core/data/token_file.h"

#include <algorithm>
#include <bit>  // std::endian
#include <cstddef>
#include <cstring>  // std::memcmp, std::memcpy
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/checksum.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

// Version 1 has no checksums, version 2 one of the tokens, version 3 another of the header.
constexpr uint32_t kFirstVersion = 1, kVersionWithoutHeaderChecksum = 2, kVersion = 3;
constexpr int64_t kLargestVocabulary = int64_t{1} << 31;

struct Header {
  char magic[sizeof(kTokenFileBeginning) - 1];
  uint32_t version;
  uint32_t token_bytes;
  uint64_t vocabulary;
  uint64_t tokens;
  uint64_t train_tokens;
  uint64_t checksum;
  uint64_t header_checksum;
  uint64_t reserved;
};
static_assert(sizeof(Header) == 64);

// The checksum of all that stands before the place of header_checksum.
uint64_t HeaderChecksumOf(const Header& header) {
  return ChecksumOf({reinterpret_cast<const char*>(&header), offsetof(Header, header_checksum)});
}

uint32_t TokenBytes(uint64_t vocabulary) { return vocabulary <= 65536 ? 2 : 4; }

// Calls run(bytes) for parts of the tokens as they lie in a file, as numbers of type T.
template <typename T, typename Run>
absl::Status ForParts(absl::Span<const int32_t> tokens, Run&& run) {
  constexpr size_t kTogether = 1 << 16;
  std::vector<T> part;
  for (size_t begin = 0; begin < tokens.size(); begin += kTogether) {
    const absl::Span<const int32_t> some = tokens.subspan(begin, kTogether);
    part.assign(some.begin(), some.end());
    LS_RETURN_IF_ERROR(run(std::as_bytes(std::span<const T>(part))));
  }
  return absl::OkStatus();
}

// The same for all that a file holds.
template <typename Run>
absl::Status ForFileParts(uint32_t token_bytes, absl::Span<const int32_t> train,
                          absl::Span<const int32_t> validation, Run&& run) {
  for (const absl::Span<const int32_t> tokens : {train, validation}) {
    LS_RETURN_IF_ERROR(token_bytes == 2 ? ForParts<uint16_t>(tokens, run)
                                        : ForParts<uint32_t>(tokens, run));
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
  LS_RETURN_IF_ERROR(file.ReadHeader());
  LS_RETURN_IF_ERROR(file.CheckTokens());
  return file;
}

TokenFile::TokenFile(std::string path, MappedFile file)
    : path_(std::move(path)), file_(std::move(file)) {}

absl::Status TokenFile::ReadHeader() {
  const auto invalid = [this](const auto&... parts) {
    return InvalidArgument("\"", path_, "\" is no file of tokens: ", parts...,
                           "; //tools/tokenize makes one from text");
  };
  const std::span<const std::byte> bytes = file_.bytes();
  Header header;
  if (bytes.size() < sizeof(header)) return invalid("it has only ", bytes.size(), " bytes");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, kTokenFileBeginning, sizeof(header.magic)) != 0) {
    return invalid("it does not begin with \"", absl::string_view(kTokenFileBeginning), "\"");
  }
  if (header.version < kFirstVersion || header.version > kVersion) {
    return invalid("its version is ", header.version, ", but only ", kFirstVersion, " to ",
                   kVersion, " are known");
  }
  const bool has_header_checksum = header.version > kVersionWithoutHeaderChecksum;
  if (has_header_checksum && header.header_checksum != HeaderChecksumOf(header)) {
    return Damaged("its header is not the one that was written, for its checksum differs");
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
  const bool has_checksum = header.version != kFirstVersion;
  if (!has_checksum && header.checksum != 0) return invalid("bytes 40 to 47 are not zero");
  if (!has_header_checksum && header.header_checksum != 0) {
    return invalid("bytes 48 to 55 are not zero");
  }
  if (header.reserved != 0) return invalid("bytes 56 to 63 are not zero");
  token_bytes_ = token_bytes;
  vocabulary_ = static_cast<int64_t>(header.vocabulary);
  tokens_ = static_cast<int64_t>(header.tokens);
  train_tokens_ = static_cast<int64_t>(header.train_tokens);
  if (has_checksum) stored_checksum_ = header.checksum;
  return absl::OkStatus();
}

absl::Status TokenFile::CheckTokens() {
  const std::span<const std::byte> bytes = file_.bytes().subspan(sizeof(Header));
  // Before the vocabulary, as a damaged token may be outside of it.
  checksum_ = ChecksumOf(token_bytes_, 0, bytes);
  if (checksum_ != stored_checksum_.value_or(checksum_)) {
    return Damaged("its tokens are not those that were written, for their checksum differs");
  }
  const uint32_t largest = token_bytes_ == 2 ? Largest<uint16_t>(bytes) : Largest<uint32_t>(bytes);
  if (largest < static_cast<uint64_t>(vocabulary_)) return absl::OkStatus();
  // Copy, which takes parts that fit into memory, finds the token and names it.
  constexpr int64_t kTogether = 1 << 16;
  std::vector<int32_t> part;
  for (int64_t begin = 0; begin < tokens_; begin += kTogether) {
    part.resize(static_cast<size_t>(std::min(kTogether, tokens_ - begin)));
    LS_RETURN_IF_ERROR(Copy(begin, absl::MakeSpan(part)));
  }
  return absl::OkStatus();
}

absl::Status TokenFile::Damaged(absl::string_view what) const {
  return absl::DataLossError(absl::StrCat("\"", path_, "\": ", what,
                                          ": the file is damaged. Copy it again, or make it anew "
                                          "with //tools/tokenize"));
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
  for (const absl::Span<const int32_t> tokens : {train, validation}) {
    for (const int32_t token : tokens) CHECK(token >= 0 && token < vocabulary) << token;
  }
  const uint32_t token_bytes = TokenBytes(static_cast<uint64_t>(vocabulary));
  uint64_t checksum = 0;
  int64_t index = 0;
  const auto sum = [&](std::span<const std::byte> part) {
    checksum += ChecksumOf(token_bytes, index, part);
    index += std::ssize(part) / token_bytes;
    return absl::OkStatus();
  };
  LS_RETURN_IF_ERROR(ForFileParts(token_bytes, train, validation, sum));
  Header header = {.magic = {},
                   .version = kVersion,
                   .token_bytes = token_bytes,
                   .vocabulary = static_cast<uint64_t>(vocabulary),
                   .tokens = train.size() + validation.size(),
                   .train_tokens = train.size(),
                   .checksum = checksum,
                   .header_checksum = 0,
                   .reserved = 0};
  std::memcpy(header.magic, kTokenFileBeginning, sizeof(header.magic));
  header.header_checksum = HeaderChecksumOf(header);
  LS_ASSIGN_OR_RETURN(AtomicFileWriter file, AtomicFileWriter::Open(path));
  LS_RETURN_IF_ERROR(file.Append({reinterpret_cast<const char*>(&header), sizeof(header)}));
  LS_RETURN_IF_ERROR(
      ForFileParts(token_bytes, train, validation, [&file](std::span<const std::byte> part) {
        return file.Append({reinterpret_cast<const char*>(part.data()), part.size()});
      }));
  return file.Commit();
}

}  // namespace lockstep
