#include "core/comm/host_copy.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr std::byte kUntouched{0xEE};

std::byte Value(int64_t i) { return static_cast<std::byte>(i * 7 % 251); }

std::vector<std::byte> Values(int64_t bytes) {
  std::vector<std::byte> values(static_cast<size_t>(bytes));
  for (int64_t i = 0; i < bytes; ++i) values[static_cast<size_t>(i)] = Value(i);
  return values;
}

// Every byte arrives at every output and none beside it, whatever the alignments are and whether
// there are whole bursts.
TEST(HostCopyTest, CopiesToAll) {
  constexpr int64_t kRoom = 64;
  for (const Store store : {Store::kCached, Store::kStreaming}) {
    for (const int64_t bytes : {0, 1, 31, 255, 256, 257, 1000, 5000}) {
      for (const int64_t from : {0, 5}) {
        for (const int64_t first : {0, 1, 32}) {
          for (const int64_t second : {0, 1, 33}) {
            const std::vector<std::byte> input = Values(from + bytes);
            std::vector<std::byte> one(static_cast<size_t>(bytes + 2 * kRoom), kUntouched);
            std::vector<std::byte> two = one;
            CopyToAll(input.data() + from, {one.data() + first, two.data() + second}, bytes, store);
            for (int64_t i = 0; i < bytes + 2 * kRoom; ++i) {
              const auto expected = [&](int64_t begin) {
                return i >= begin && i < begin + bytes ? Value(from + i - begin) : kUntouched;
              };
              ASSERT_EQ(one[static_cast<size_t>(i)], expected(first)) << bytes << " " << i;
              ASSERT_EQ(two[static_cast<size_t>(i)], expected(second)) << bytes << " " << i;
            }
          }
        }
      }
    }
  }
}

TEST(HostCopyTest, Swaps) {
  for (const Moves moves : {Moves::kBlocks, Moves::kBursts}) {
    for (const int64_t bytes : {0, 1, 256, 300, 8192, 20'001}) {
      const std::vector<std::byte> values = Values(bytes + 2);
      const std::vector<std::byte> others(static_cast<size_t>(bytes + 2), kUntouched);
      std::vector<std::byte> one = values, other = others;
      Swap(one.data() + 1, other.data() + 1, bytes, moves);
      for (int64_t i = 0; i < bytes + 2; ++i) {
        const auto at = static_cast<size_t>(i);
        const bool inside = i > 0 && i <= bytes;
        ASSERT_EQ(one[at], inside ? others[at] : values[at]) << bytes << " " << i;
        ASSERT_EQ(other[at], inside ? values[at] : others[at]) << bytes << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
