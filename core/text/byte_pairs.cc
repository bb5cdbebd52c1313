#include "core/text/byte_pairs.h"

#include <algorithm>  // std::fill, std::min
#include <cstddef>
#include <functional>  // std::greater
#include <queue>
#include <set>
#include <tuple>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/status.h"
#include "core/text/utf8.h"
#include "core/text/words.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr char kTokensFile[] = "encoder.json";
constexpr char kMergesFile[] = "vocab.bpe";
constexpr char kEndOfText[] = "<|endoftext|>";
constexpr int32_t kNone = -1;

// The characters by which the files write bytes: printable ones of Latin-1 stand for themselves,
// the others for U+0100, U+0101, ... in their order.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    std::fill(bytes_.begin(), bytes_.end(), kNone);
    int32_t next = 256;
    for (int32_t byte = 0; byte < 256; ++byte) {
      const bool is_printable =
          (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD /* soft hyphen */);
      bytes_[is_printable ? byte : next++] = byte;
    }
  }

  // The bytes of a token; nothing if a character is none of the alphabet.
  std::optional<std::string> Bytes(std::string_view token) const {
    const absl::StatusOr<std::u32string> characters = DecodeUtf8({token.data(), token.size()});
    if (!characters.ok()) return std::nullopt;
    std::string bytes;
    for (const char32_t character : *characters) {
      if (character >= bytes_.size() || bytes_[character] == kNone) return std::nullopt;
      bytes.push_back(static_cast<char>(bytes_[character]));
    }
    return bytes;
  }

 private:
  static constexpr size_t kCharacters = 256 + 68;  // 68 bytes are not printable
  std::array<int32_t, kCharacters> bytes_;         // by character
};

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
}

// What a file holds, as a message shows it: short, and without control characters.
std::string Quoted(std::string_view text) {
  constexpr size_t kLongest = 60;
  const std::string shown(text.substr(0, kLongest));
  return absl::StrCat("\"", absl::Utf8SafeCEscape(shown), text.size() > kLongest ? "..." : "",
                      "\"");
}

// Neighbours in a word that are to become one token.
struct Candidate {
  int32_t rank;
  int32_t left;     // the place of the first byte of the left one
  int32_t right;    // and of the right one
  uint64_t tokens;  // PairKey: outdated once one of the two is another
  int32_t merged;

  bool operator>(const Candidate& other) const {
    return std::tie(rank, left) > std::tie(other.rank, other.left);
  }
};

}  // namespace

absl::StatusOr<BytePairs> BytePairs::Load(const std::string& directory) {
  BytePairs pairs;
  const auto read = [&](const char* name, auto parse) -> absl::Status {
    const std::string path = absl::StrCat(directory, "/", name);
    absl::StatusOr<std::string> contents = ReadFile(path);
    if (!contents.ok()) {
      return absl::Status(
          contents.status().code(),
          absl::StrCat(contents.status().message(), "; a byte-pair tokenizer is a folder with ",
                       kTokensFile, " and ", kMergesFile));
    }
    return Annotate(parse(*contents), absl::StrCat("\"", path, "\""));
  };
  LS_RETURN_IF_ERROR(
      read(kTokensFile, [&](const std::string& text) { return pairs.ParseTokens(text); }));
  LS_RETURN_IF_ERROR(
      read(kMergesFile, [&](const std::string& text) { return pairs.ParseMerges(text); }));
  return pairs;
}

absl::Status BytePairs::ParseTokens(const std::string& text) {
  Json json;
  std::set<std::string> names;
  std::string duplicate;
  const auto note_keys = [&](int /*depth*/, Json::parse_event_t event, const Json& parsed) {
    if (event != Json::parse_event_t::key) return true;
    const auto name = parsed.get<std::string>();
    if (!names.insert(name).second) duplicate = name;
    return true;
  };
  if (NestingOf(text) > kDeepestJson) {
    return absl::InvalidArgumentError("holds lists or objects too deep inside others");
  }
  try {
    json = Json::parse(text, note_keys);
  } catch (const Json::parse_error& error) {
    return InvalidArgument("is not valid JSON at byte ", error.byte);
  } catch (const Json::out_of_range&) {
    return absl::InvalidArgumentError("holds a number that is too large");
  }
  if (!duplicate.empty()) return InvalidArgument("has the token ", Quoted(duplicate), " twice");
  if (!json.is_object() || json.empty()) {
    return absl::InvalidArgumentError("is no map from tokens to ids");
  }
  const ByteAlphabet alphabet;
  tokens_.resize(json.size());
  std::vector<bool> is_set(json.size());
  for (const auto& [name, id] : json.items()) {
    const std::optional<std::string> bytes = alphabet.Bytes(name);
    if (!bytes || bytes->empty()) {
      return InvalidArgument("token ", Quoted(name),
                             " is not written in the alphabet that stands for bytes");
    }
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= json.size()) {
      return InvalidArgument("token ", Quoted(name), " has the id ", Quoted(id.dump()),
                             ", but ids are 0 to ", json.size() - 1, ", one for each token");
    }
    const auto token = id.get<size_t>();
    if (is_set[token]) {
      return InvalidArgument("two tokens have the id ", token);
    }
    is_set[token] = true;
    tokens_[token] = *bytes;
    if (name == kEndOfText) end_of_text_ = static_cast<int32_t>(token);
  }
  std::fill(byte_tokens_.begin(), byte_tokens_.end(), kNone);
  for (size_t token = 0; token < tokens_.size(); ++token) {
    const std::string& bytes = tokens_[token];
    if (bytes.size() == 1) {
      byte_tokens_[static_cast<uint8_t>(bytes[0])] = static_cast<int32_t>(token);
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (byte_tokens_[byte] == kNone) {
      return InvalidArgument("has no token for the single byte ", byte,
                             ", so not every text has tokens");
    }
  }
  return absl::OkStatus();
}

absl::Status BytePairs::ParseMerges(std::string_view lines) {
  const ByteAlphabet alphabet;
  std::unordered_map<std::string, int32_t> ids;
  for (size_t token = 0; token < tokens_.size(); ++token) {
    ids.emplace(tokens_[token], static_cast<int32_t>(token));
  }
  const auto find = [&](const std::string& bytes) {
    const auto found = ids.find(bytes);
    return found == ids.end() ? kNone : found->second;
  };
  if (lines.empty()) {
    return absl::InvalidArgumentError(
        "is empty; a vocabulary of single bytes has the line \"#version: 0.2\" alone");
  }
  int32_t rank = 0;
  for (int64_t number = 1; !lines.empty(); ++number) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(line.size() + 1, lines.size()));
    if (number == 1 && line.starts_with("#version")) continue;
    if (line.empty() && lines.empty()) break;
    const auto invalid = [&](const std::string& what) {
      return InvalidArgument("line ", number, ", ", Quoted(line), ", ", what);
    };
    const size_t blank = line.find(' ');
    if (blank == line.npos) return invalid("is no pair of tokens with a blank between them");
    const auto left = alphabet.Bytes(line.substr(0, blank));
    const auto right = alphabet.Bytes(line.substr(blank + 1));
    if (!left || !right) return invalid("is no pair of tokens with a blank between them");
    const int32_t left_id = find(*left), right_id = find(*right), merged = find(*left + *right);
    if (left_id == kNone || right_id == kNone || merged == kNone) {
      return invalid(absl::StrCat("joins what ", kTokensFile,
                                  " does not know: both tokens and what they make must be there"));
    }
    if (!merges_.emplace(PairKey(left_id, right_id), Merge{rank++, merged}).second) {
      return invalid("comes a second time");
    }
  }
  return absl::OkStatus();
}

const BytePairs::Merge* BytePairs::Find(int32_t left, int32_t right) const {
  const auto found = merges_.find(PairKey(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

std::vector<int32_t> BytePairs::Encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  while (!text.empty()) {
    const size_t bytes = FirstWordBytes(text);
    AppendWord(text.substr(0, bytes), tokens);
    text.remove_prefix(bytes);
  }
  return tokens;
}

void BytePairs::AppendWord(std::string_view word, std::vector<int32_t>& tokens) const {
  const auto size = static_cast<int32_t>(word.size());
  CHECK_EQ(static_cast<size_t>(size), word.size()) << "a word of more than 2^31 bytes";
  // A token stands at its first byte and knows where its neighbours do.
  struct Place {
    int32_t token;
    int32_t before, after;
  };
  std::vector<Place> places(word.size());
  for (int32_t i = 0; i < size; ++i) {
    places[i] = {byte_tokens_[static_cast<uint8_t>(word[i])], i - 1, i + 1};
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto consider = [&](int32_t left, int32_t right) {
    if (left < 0 || right >= size) return;
    const int32_t left_token = places[left].token, right_token = places[right].token;
    if (const Merge* merge = Find(left_token, right_token); merge != nullptr) {
      candidates.push({merge->rank, left, right, PairKey(left_token, right_token), merge->token});
    }
  };
  for (int32_t i = 0; i + 1 < size; ++i) consider(i, i + 1);

  std::vector<int32_t> joined;
  while (!candidates.empty()) {
    // All of one rank, from left to right, before what they make is looked at: a list may name the
    // pair of a token before the pair that makes it.
    joined.clear();
    for (const int32_t rank = candidates.top().rank;
         !candidates.empty() && candidates.top().rank == rank;) {
      const Candidate pair = candidates.top();
      candidates.pop();
      Place& left = places[pair.left];
      const Place& right = places[pair.right];
      if (left.after != pair.right || PairKey(left.token, right.token) != pair.tokens) continue;
      left.token = pair.merged;
      left.after = right.after;
      if (left.after < size) places[left.after].before = pair.left;
      places[pair.right].token = kNone;
      joined.push_back(pair.left);
    }
    for (const int32_t place : joined) {
      if (places[place].token == kNone) continue;
      consider(places[place].before, place);
      consider(place, places[place].after);
    }
  }
  for (int32_t place = 0; place < size; place = places[place].after) {
    tokens.push_back(places[place].token);
  }
}

std::string BytePairs::Decode(absl::Span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t token : tokens) {
    CHECK_GE(token, 0);
    CHECK_LT(token, vocabulary());
    text += tokens_[token];
  }
  return text;
}

}  // namespace lockstep
