// What PeakParameterBytes predicts.

#include <vector>

#include "gtest/gtest.h"
#include "strategies/data_parallel/residency.h"

namespace lockstep {
namespace {

// Three blocks, each with a unit of its own.
std::vector<UnitNeeds> Chain(int64_t resting) {
  return {{.first = 0, .last = 0, .whole = 100, .resting = resting},
          {.first = 1, .last = 1, .whole = 80, .resting = resting},
          {.first = 2, .last = 2, .whole = 60, .resting = resting}};
}

TEST(PeakMemoryTest, AUnitAndTheNextOneAreWhole) {
  EXPECT_EQ(PeakParameterBytes(Chain(0)), 100 + 80);
}

TEST(PeakMemoryTest, PartsRestUntilTheyAreGathered) {
  // While a unit's resting shard is copied out of it, the next one is whole already.
  EXPECT_EQ(PeakParameterBytes(Chain(25)), 100 + 25 + 80);
  // With four alike, the third one is whole, its shard copied, the fourth whole, and two shards
  // rest; likewise at the beginning of backward.
  std::vector<UnitNeeds> alike;
  for (int i = 0; i < 4; ++i) alike.push_back({.first = i, .last = i, .whole = 40, .resting = 20});
  EXPECT_EQ(PeakParameterBytes(alike), 40 + 40 + 3 * 20);
}

// All units rest when forward begins again, and they are there until they are gathered.
TEST(PeakMemoryTest, AllPartsRestWhereForwardRunsTwice) {
  EXPECT_EQ(PeakParameterBytes(Chain(25), /*recomputes=*/true), 100 + 80 + 3 * 25);
  EXPECT_EQ(PeakParameterBytes(Chain(0), /*recomputes=*/true), 100 + 80);
}

TEST(PeakMemoryTest, WhatStaysWholeIsCountedOnce) {
  EXPECT_EQ(PeakParameterBytes({{.first = 0, .last = 0, .whole = 100, .resting = 100},
                                {.first = 1, .last = 1, .whole = 80, .resting = 80}}),
            180);
}

TEST(PeakMemoryTest, AUnitThatTheLastBlockUsesTooStaysBetween) {
  std::vector<UnitNeeds> units = Chain(0);
  units[0].last = 2;
  EXPECT_EQ(PeakParameterBytes(units), 100 + 80 + 60);
}

}  // namespace
}  // namespace lockstep
