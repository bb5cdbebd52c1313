#include "tools/draw/lanes.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/draw/testing/markup_check.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Two ranks, 200 pixels for 10 ms.
Lanes TwoRanks() {
  return {
      .title = "Ranks & steps",
      .subtitle = "a < b",
      .total = 10,
      .unit = " ms",
      .width = 200,
      .ranks = {{{.begin = 0, .end = 4, .work = &kBackwardWork, .number = "3", .tooltip = "B3"},
                 {.begin = 4, .end = 4.5, .work = &kForwardWork, .number = "12", .tooltip = ""}},
                {{.begin = 5, .end = 10, .work = &kForwardWork, .number = "", .tooltip = ""}}},
      .remark = "pale: late"};
}

TEST(LanesTest, BarsAreToScaleInTheirRanksRow) {
  const std::string svg = SvgOf(TwoRanks());
  EXPECT_EQ(MarkupFault(svg), "");
  // Behind 92 pixels for margin and label.
  EXPECT_THAT(svg, HasSubstr("x=\"92.0\" y=\"88.0\" width=\"80.0\""));
  EXPECT_THAT(svg, HasSubstr("x=\"172.0\" y=\"88.0\" width=\"10.0\""));
  EXPECT_THAT(svg, HasSubstr("x=\"192.0\" y=\"128.0\" width=\"100.0\""));
  EXPECT_THAT(svg, AllOf(HasSubstr(">rank 0</text>"), HasSubstr(">rank 1</text>"),
                         HasSubstr(">10 ms</text>"), HasSubstr("<title>B3</title>"),
                         HasSubstr("Ranks &amp; steps"), HasSubstr("a &lt; b")));
}

// At 60 pixels or more: 20 pixels a millisecond make it 5 ms.
TEST(LanesTest, TheAxisHasRoundNumbers) {
  EXPECT_THAT(SvgOf(TwoRanks()),
              AllOf(HasSubstr("<path d=\"M192.0 82.0V164.0\""), HasSubstr(">0 ms</text>"),
                    HasSubstr(">5 ms</text>"), Not(HasSubstr(">4 ms</text>"))));
}

TEST(LanesTest, NumbersStandWhereThereIsRoom) {
  EXPECT_THAT(SvgOf(TwoRanks()), AllOf(HasSubstr(">3</text>"), Not(HasSubstr(">12</text>"))));
}

TEST(LanesTest, TheKeyHasWhatOccursOnce) {
  EXPECT_THAT(
      SvgOf(TwoRanks()),
      AllOf(ContainsRegex(">forward</text>(.|\n)*>backward</text>(.|\n)*>pale: late</text>"),
            Not(ContainsRegex(">forward</text>(.|\n)*>forward</text>")),
            Not(HasSubstr("optimizer"))));
}

}  // namespace
}  // namespace lockstep
