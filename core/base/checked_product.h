#pragma once

#include <cstdint>
#include <optional>
#include <ranges>

namespace lockstep {

// The product of numbers that come from outside (a configuration, a file), none negative; nothing
// where they, multiplied in their order, do not fit into int64. Sizes in bytes are made so, before
// anything is allocated.
template <std::ranges::input_range Numbers>
std::optional<int64_t> CheckedProduct(const Numbers& numbers, int64_t first = 1) {
  int64_t product = first;
  for (const int64_t number : numbers) {
    if (__builtin_mul_overflow(product, number, &product)) return std::nullopt;
  }
  return product;
}

}  // namespace lockstep
