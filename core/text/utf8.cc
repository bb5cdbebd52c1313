#include "core/text/utf8.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lockstep {
namespace {

// Bytes of the sequence that `lead` begins; 0 if none does.
size_t SequenceBytes(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;  // C0 and C1 could only begin overlong forms
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

bool IsSurrogate(char32_t character) { return character >= 0xD800 && character <= 0xDFFF; }

}  // namespace

absl::StatusOr<std::u32string> DecodeUtf8(absl::string_view text) {
  std::u32string characters;
  characters.reserve(text.size());
  size_t offset = 0;
  while (offset < text.size()) {
    const uint8_t lead = static_cast<uint8_t>(text[offset]);
    const size_t bytes = SequenceBytes(lead);
    bool valid = bytes > 0 && offset + bytes <= text.size();
    char32_t character = bytes == 1 ? lead : lead & (0x7F >> bytes);
    for (size_t i = 1; valid && i < bytes; ++i) {
      const uint8_t byte = static_cast<uint8_t>(text[offset + i]);
      valid = (byte & 0xC0) == 0x80;
      character = character << 6 | (byte & 0x3F);
    }
    if (!valid || Utf8Bytes(character) != bytes || IsSurrogate(character) || character > 0x10FFFF) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "the text is not UTF-8 at byte offset %d (byte 0x%02X); convert it to UTF-8 first",
          offset, lead));
    }
    characters.push_back(character);
    offset += bytes;
  }
  return characters;
}

void AppendUtf8(char32_t character, std::string& text) {
  const size_t bytes = Utf8Bytes(character);
  if (bytes == 1) {
    text.push_back(static_cast<char>(character));
    return;
  }
  const uint32_t mark = 0xF00u >> bytes & 0xFF;  // as many ones as there are bytes, then a zero
  text.push_back(static_cast<char>(mark | character >> (6 * (bytes - 1))));
  for (size_t left = bytes - 1; left > 0; --left) {
    text.push_back(static_cast<char>(0x80 | (character >> (6 * (left - 1)) & 0x3F)));
  }
}

size_t Utf8Bytes(char32_t character) {
  if (character < 0x80) return 1;
  if (character < 0x800) return 2;
  return character < 0x10000 ? 3 : 4;
}

std::string DescribeCharacter(char32_t character) {
  std::string code = absl::StrFormat("U+%04X", static_cast<uint32_t>(character));
  if (character < 0x20 || (character >= 0x7F && character < 0xA0)) return code;
  std::string shown;
  AppendUtf8(character, shown);
  return absl::StrCat("'", shown, "' (", code, ")");
}

}  // namespace lockstep
