#include "tools/tokenize/tokenized_text.h"

#include <algorithm>
#include <cmath>

#include "core/text/words.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// Whether `byte` goes on with a character of UTF-8 that an earlier byte has begun.
bool Continues(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

}  // namespace

size_t TrainingBytes(std::string_view text, double validation) {
  CHECK(validation >= 0 && validation < 1) << validation;
  const auto characters = text.size() - std::ranges::count_if(text, Continues);
  auto left = static_cast<size_t>(std::floor(static_cast<double>(characters) * (1 - validation)));
  size_t end = 0;
  // Up to the beginning of the first character that is too many.
  for (; end < text.size(); ++end) {
    if (Continues(text[end])) continue;
    if (left == 0) break;
    --left;
  }
  return end;
}

std::vector<int32_t> Tokenize(const BytePairs& pairs, std::string_view text,
                              const std::function<void(size_t bytes)>& progress) {
  constexpr size_t kBetween = 1 << 18;
  std::vector<int32_t> tokens;
  size_t done = 0, told = 0;
  while (done < text.size()) {
    const std::string_view rest = text.substr(done);
    const size_t bytes = FirstWordBytes(rest);
    pairs.AppendWord(rest.substr(0, bytes), tokens);
    done += bytes;
    if (done - told >= kBetween) progress(told = done);
  }
  progress(done);
  return tokens;
}

}  // namespace lockstep
