#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "core/text/byte_pairs.h"

namespace lockstep {

// Where the part for training ends, in bytes: of all characters the last `validation` (a share in
// [0, 1)) are for validation, rounded up. With a tenth, the parts of the data set `text`. What is
// no UTF-8 counts a character for each byte that continues none.
size_t TrainingBytes(std::string_view text, double validation);

// The tokens of a text. `progress` hears now and then how many of its bytes are done, at the end
// all.
std::vector<int32_t> Tokenize(const BytePairs& pairs, std::string_view text,
                              const std::function<void(size_t bytes)>& progress);

}  // namespace lockstep
