#pragma once

#include <compare>
#include <cstdint>

namespace lockstep::cuda {

// The extents of [batch, height, width, channels].
struct Images {
  int64_t batch, height, width, channels;

  auto operator<=>(const Images&) const = default;
};

}  // namespace lockstep::cuda
