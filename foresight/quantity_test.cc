#include "foresight/quantity.h"

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(QuantityTest, ReadsUnits) {
  EXPECT_EQ(ParseQuantity("80 GB", Dimension::kBytes).value(), 80e9);
  EXPECT_EQ(ParseQuantity("40GiB", Dimension::kBytes).value(), 40 * 0x1p30);
  EXPECT_EQ(ParseQuantity("512 B", Dimension::kBytes).value(), 512);
  EXPECT_EQ(ParseQuantity("1e21FLOP", Dimension::kFlops).value(), 1e21);
  EXPECT_EQ(ParseQuantity("2 EFLOP", Dimension::kFlops).value(), 2e18);
  EXPECT_EQ(ParseQuantity("312 TFLOP/s", Dimension::kFlopsPerSecond).value(), 312e12);
  EXPECT_EQ(ParseQuantity("2.04TB/s", Dimension::kBytesPerSecond).value(), 2.04e12);
  EXPECT_EQ(ParseQuantity("100Gbit", Dimension::kBytesPerSecond).value(), 12.5e9);
  EXPECT_EQ(ParseQuantity("800 Gbit/s", Dimension::kBytesPerSecond).value(), 1e11);
  EXPECT_DOUBLE_EQ(ParseQuantity("2.5 us", Dimension::kSeconds).value(), 2.5e-6);
  EXPECT_EQ(ParseQuantity("1.5e-3 s", Dimension::kSeconds).value(), 1.5e-3);
}

TEST(QuantityTest, RefusesWhatIsNone) {
  for (const char* text : {"80", "80 GBB", "GB", "80 G", "", "80 Gbit", "1e GB", "80 kiB"}) {
    const auto parsed = ParseQuantity(text, Dimension::kBytes);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_NE(parsed.status().message().find("\"80 GB\""), absl::string_view::npos)
        << parsed.status();
  }
  EXPECT_FALSE(ParseQuantity("3 kms", Dimension::kSeconds).ok());
  EXPECT_FALSE(ParseQuantity("312 TFLOP", Dimension::kFlopsPerSecond).ok());
  EXPECT_FALSE(ParseQuantity("-1 GB", Dimension::kBytes).ok());
  EXPECT_FALSE(ParseQuantity("1e400 GB", Dimension::kBytes).ok());
  EXPECT_FALSE(ParseQuantity("1e300 PB", Dimension::kBytes).ok());
}

TEST(QuantityTest, WritesThreeDigits) {
  EXPECT_EQ(FormatQuantity(312e12, Dimension::kFlopsPerSecond), "312 TFLOP/s");
  EXPECT_EQ(FormatQuantity(1.5e9, Dimension::kBytesPerSecond), "1.5 GB/s");
  EXPECT_EQ(FormatQuantity(0.00251, Dimension::kSeconds), "2.51 ms");
  EXPECT_EQ(FormatQuantity(0, Dimension::kBytes), "0 B");
}

}  // namespace
}  // namespace lockstep
