#include "core/nn/dropout.h"

#include <cstdint>

#include "core/base/philox.h"

namespace lockstep {

Dropout DropoutAt(const Pass& pass, const std::string& place, float probability) {
  if (!pass.training() || probability == 0) return {};
  return {
      .probability = probability,
      .key = PhiloxKey(pass.seed, "dropout", place),
      .counter = static_cast<uint64_t>(pass.step) << 32 | static_cast<uint64_t>(pass.micro_batch)};
}

}  // namespace lockstep
