#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep {

// The characters (code points) of a UTF-8 text, read strictly as RFC 3629 has it: overlong forms,
// surrogates and code points above U+10FFFF are errors. InvalidArgument names the byte offset.
absl::StatusOr<std::u32string> DecodeUtf8(absl::string_view text);

// Appends one character. Requires a code point that UTF-8 can express.
void AppendUtf8(char32_t character, std::string& text);

// Bytes of a character in UTF-8: 1 to 4.
size_t Utf8Bytes(char32_t character);

// A character as messages show it: "'x' (U+0078)"; control characters by their code alone.
std::string DescribeCharacter(char32_t character);

}  // namespace lockstep
