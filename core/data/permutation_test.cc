#include "core/data/permutation.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

std::vector<int64_t> Order(const Permutation& permutation, uint64_t epoch) {
  std::vector<int64_t> order;
  for (int64_t place = 0; place < permutation.size(); ++place) {
    order.push_back(permutation.At(place, epoch));
  }
  return order;
}

TEST(Permutation, VisitsEachElementOnce) {
  for (int64_t n : {1, 2, 3, 4, 5, 15, 16, 17, 64, 65, 1000, 4096, 10000}) {
    const Permutation permutation(42, n);
    for (uint64_t epoch : {0, 1, 77}) {
      std::vector<int64_t> order = Order(permutation, epoch);
      std::sort(order.begin(), order.end());
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(order[i], i) << n << " " << epoch;
    }
  }
}

TEST(Permutation, KeysAndEpochsGiveOtherOrders) {
  const Permutation a(1, 1000);
  const Permutation b(2, 1000);
  EXPECT_EQ(Order(a, 0), Order(Permutation(1, 1000), 0));
  EXPECT_NE(Order(a, 0), Order(a, 1));
  EXPECT_NE(Order(a, 0), Order(b, 0));
  // Two unrelated orders agree in one place on average.
  int agreements = 0;
  for (int64_t place = 0; place < 1000; ++place) agreements += a.At(place, 0) == a.At(place, 1);
  EXPECT_LT(agreements, 10);
}

TEST(Permutation, AllOrdersAreEquallyLikely) {
  constexpr int kEpochs = 12000;
  const Permutation permutation(7, 5);
  std::map<std::vector<int64_t>, int> count;
  for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) ++count[Order(permutation, epoch)];
  EXPECT_EQ(count.size(), 120u);
  double chi_square = 0;
  for (const auto& [order, times] : count) chi_square += (times - 100.0) * (times - 100.0) / 100;
  // 119 degrees of freedom: mean 119, deviation 15.4.
  EXPECT_LT(chi_square, 119 + 5 * 15.4);
  EXPECT_GT(chi_square, 119 - 5 * 15.4);
}

TEST(Permutation, NeighboursAreUnrelated) {
  // The distance (mod n) from one place's element to the next one's is uniform: 16 bins.
  constexpr int64_t kSize = 50000;
  const Permutation permutation(9, kSize);
  std::vector<int> bins(16);
  for (int64_t place = 0; place + 1 < kSize; ++place) {
    const int64_t step = permutation.At(place + 1, 3) - permutation.At(place, 3) + kSize;
    ++bins[step % kSize * 16 / kSize];
  }
  double chi_square = 0;
  const double expected = (kSize - 1) / 16.0;
  for (int bin : bins) chi_square += (bin - expected) * (bin - expected) / expected;
  EXPECT_LT(chi_square, 15 + 5 * 5.5);
}

TEST(Permutation, TakesLargeDomains) {
  const int64_t n = (int64_t{1} << 40) + 12345;
  const Permutation permutation(3, n);
  for (int64_t place : {int64_t{0}, int64_t{1}, n / 2, n - 1}) {
    const int64_t element = permutation.At(place, 0);
    EXPECT_GE(element, 0);
    EXPECT_LT(element, n);
  }
}

}  // namespace
}  // namespace lockstep
