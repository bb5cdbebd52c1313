#pragma once

#include <cstdint>
#include <memory>

#include "core/data/dataset.h"

namespace lockstep {

// Samples that cost next to nothing to make and mean nothing: for benchmarks of what comes behind
// the data, as the PyTorch side has them too.

// Images of side x side pixels in three channels, each normally distributed, with random classes.
// There are 64 of them, over and over.
std::shared_ptr<const Dataset> RandomImages(int64_t side, int64_t classes);

// Windows of tokens, each drawn uniformly from the vocabulary.
std::shared_ptr<const Dataset> RandomTokens(int64_t vocabulary, int64_t context);

}  // namespace lockstep
