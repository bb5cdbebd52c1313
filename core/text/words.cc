#include "core/text/words.h"

#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <cstdint>

namespace lockstep {
namespace {

enum class Kind { kLetter, kNumber, kSpace, kOther };

struct Character {
  Kind kind;
  size_t bytes;
};

Kind KindOf(UChar32 character) {
  if (character < 0) return Kind::kOther;  // no UTF-8
  const uint32_t category = U_MASK(u_charType(character));
  if ((category & U_GC_L_MASK) != 0) return Kind::kLetter;
  if ((category & U_GC_N_MASK) != 0) return Kind::kNumber;
  return u_isUWhiteSpace(character) ? Kind::kSpace : Kind::kOther;
}

// The character that begins at `offset`. Bytes that are no UTF-8 count as one, one or more at a
// time.
Character CharacterAt(std::string_view text, size_t offset) {
  // ICU counts in 32 bits; no character has more than four bytes.
  const std::string_view rest = text.substr(offset, U8_MAX_LENGTH);
  const auto length = static_cast<int32_t>(rest.size());
  int32_t next = 0;
  UChar32 character = 0;
  U8_NEXT(rest.data(), next, length, character);
  return {KindOf(character), static_cast<size_t>(next)};
}

// Where the characters of one kind end that begin at `offset`, and how many bytes the last has.
struct CharacterRun {
  size_t end;
  size_t last_bytes = 0;
};

CharacterRun RunOf(Kind kind, std::string_view text, size_t offset) {
  CharacterRun run = {.end = offset};
  while (run.end < text.size()) {
    const Character character = CharacterAt(text, run.end);
    if (character.kind != kind) break;
    run.end += character.bytes;
    run.last_bytes = character.bytes;
  }
  return run;
}

// Bytes of the English contraction that the text begins with; 0: none.
size_t ContractionBytes(std::string_view text) {
  for (const std::string_view contraction : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.starts_with(contraction)) return contraction.size();
  }
  return 0;
}

}  // namespace

size_t FirstWordBytes(std::string_view text) {
  if (const size_t contraction = ContractionBytes(text); contraction > 0) return contraction;
  const size_t blank = text[0] == ' ' && text.size() > 1 ? 1 : 0;
  if (const Kind kind = CharacterAt(text, blank).kind; kind != Kind::kSpace) {
    return RunOf(kind, text, blank).end;
  }
  // White space leaves its last character to what follows, if it has others.
  const CharacterRun space = RunOf(Kind::kSpace, text, 0);
  if (space.end == text.size() || space.end == space.last_bytes) return space.end;
  return space.end - space.last_bytes;
}

}  // namespace lockstep
