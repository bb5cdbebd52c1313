#pragma once

#include <cstdint>
#include <optional>
#include <ranges>

namespace lockstep {

// Returns first * the product of `numbers`, or nothing where a product on the way does not fit into
// int64. None may be negative. Sizes in bytes that a configuration or a file decides are computed
// with it, before anything is allocated.
template <std::ranges::input_range Numbers>
std::optional<int64_t> CheckedProduct(const Numbers& numbers, int64_t first = 1) {
  int64_t product = first;
  for (const int64_t number : numbers) {
    if (__builtin_mul_overflow(product, number, &product)) return std::nullopt;
  }
  return product;
}

}  // namespace lockstep
