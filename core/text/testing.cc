#include "core/text/testing.h"

#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

// A byte as the files write it, by the rule that GPT-2 was published with: these are themselves,
// and the rest counts on from U+0100.
std::string Written(int byte) {
  const auto is_itself = [](int b) {
    return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
  };
  int character = byte;
  if (!is_itself(byte)) {
    character = 256;
    for (int b = 0; b < byte; ++b) character += is_itself(b) ? 0 : 1;
  }
  if (character < 0x80) return std::string(1, static_cast<char>(character));
  return {static_cast<char>(0xC0 | character >> 6), static_cast<char>(0x80 | (character & 0x3F))};
}

std::string JsonKey(const std::string& token) {
  return token == "\"" || token == "\\" ? "\\" + token : token;
}

}  // namespace

std::string TokensJson(const std::vector<std::string>& others) {
  std::string json = "{";
  for (int byte = 0; byte < 256; ++byte) {
    absl::StrAppend(&json, "\"", JsonKey(Written(byte)), "\": ", byte, ", ");
  }
  int id = 256;
  for (const std::string& other : others) absl::StrAppend(&json, "\"", other, "\": ", id++, ", ");
  json.resize(json.size() - 2);
  return json + "}";
}

}  // namespace lockstep
