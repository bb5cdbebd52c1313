#include "core/base/clock.h"

#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(NowNanos, NeverGoesBack) {
  int64_t last = NowNanos();
  for (int i = 0; i < 1000; ++i) {
    const int64_t now = NowNanos();
    EXPECT_GE(now, last);
    last = now;
  }
  EXPECT_GE(SecondsSince(last), 0);
}

TEST(FormatDuration, ChoosesUnits) {
  EXPECT_EQ(FormatDuration(0), "0 ns");
  EXPECT_EQ(FormatDuration(850e-9), "850 ns");
  EXPECT_EQ(FormatDuration(12.5e-6), "12.5 us");
  EXPECT_EQ(FormatDuration(3.21e-3), "3.2 ms");
  EXPECT_EQ(FormatDuration(0.345), "345 ms");
  EXPECT_EQ(FormatDuration(3.21), "3.2 s");
  EXPECT_EQ(FormatDuration(45.2), "45 s");
  EXPECT_EQ(FormatDuration(125), "2m05s");
  EXPECT_EQ(FormatDuration(3720), "1h02m");
  EXPECT_EQ(FormatDuration(3 * 86400 + 4 * 3600 + 59), "3d04h");
  EXPECT_EQ(FormatDuration(-2.5), "-2.5 s");
}

TEST(FormatDuration, CarriesWhereItRounds) {
  EXPECT_EQ(FormatDuration(999.97e-9), "1.0 us");
  EXPECT_EQ(FormatDuration(0.99996), "1.0 s");
  EXPECT_EQ(FormatDuration(9.97), "10 s");
  EXPECT_EQ(FormatDuration(59.96), "1m00s");
  EXPECT_EQ(FormatDuration(119.7), "2m00s");
  EXPECT_EQ(FormatDuration(3599.8), "1h00m");
}

TEST(FormatDuration, SaysWhenItCannotKnow) {
  EXPECT_EQ(FormatDuration(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(FormatDuration(std::numeric_limits<double>::quiet_NaN()), "?");
  EXPECT_EQ(FormatDuration(1e300), "?");
}

TEST(FormatBytes, ChoosesUnits) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.0 KiB");
  EXPECT_EQ(FormatBytes(25 << 20), "25.0 MiB");
  EXPECT_EQ(FormatBytes((int64_t{1} << 30) + (int64_t{1} << 29)), "1.5 GiB");
  EXPECT_EQ(FormatBytes((int64_t{1} << 20) - 1), "1.0 MiB");
  EXPECT_EQ(FormatBytes(-2048), "-2.0 KiB");
  EXPECT_EQ(FormatBytes(std::numeric_limits<int64_t>::max()), "8192.0 PiB");
}

TEST(FormatCount, ChoosesUnits) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(12345), "12.3K");
  EXPECT_EQ(FormatCount(999999), "1.0M");
  EXPECT_EQ(FormatCount(11689512), "11.7M");
  EXPECT_EQ(FormatCount(124439808), "124.4M");
  EXPECT_EQ(FormatCount(1500000000), "1.5B");
  EXPECT_EQ(FormatCount(-1000), "-1.0K");
}

}  // namespace
}  // namespace lockstep
