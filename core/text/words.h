#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep {

// Returns the length in bytes of the first word of a text. GPT-2 cuts a text into words before it
// looks for byte pairs; no pair reaches from one word into the next. Words are the matches of the
// expression that was published with the model (openai/gpt-2, src/encoder.py), by the first
// alternative that fits:
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// L and N are Unicode's letters and numbers, \s its White_Space, as ICU has them. So a blank
// belongs to the word after it, and every byte to exactly one word: joined, the words are the text.
// Bytes that are no UTF-8 count as characters that are neither letter, number nor space.
//
// Requires a text that is not empty. O(length of the word, or of the white space that it begins).
size_t FirstWordBytes(std::string_view text);

}  // namespace lockstep
