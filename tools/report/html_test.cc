#include "tools/report/html.h"

#include <limits>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/draw/testing/markup_check.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A page without its scripts, whose text is no markup.
std::string WithoutScripts(std::string html) {
  for (size_t begin; (begin = html.find("<script")) != std::string::npos;) {
    html.erase(begin, html.find("</script>", begin) + 9 - begin);
  }
  return html;
}

Report OneSection(decltype(Section::items) items) {
  return {.title = "R&D", .sections = {{.title = "a <b>", .items = std::move(items)}}};
}

TEST(HtmlOfTest, IsWholeMarkupWithAllTextEscaped) {
  Table table = {.title = "1 < 2", .columns = {{"left", Table::Align::kLeft}, {"right"}}};
  table.Add({"a&b", "\"3\""});
  const std::string html = WithoutScripts(
      HtmlOf(OneSection({table, Paragraph{"small", Paragraph::Tone::kNote},
                         Paragraph{"x < y", Paragraph::Tone::kWarning},
                         Chart{.id = "loss", .title = "loss & more", .body = LineChart()}})));
  EXPECT_EQ(MarkupFault(html), "");
  EXPECT_THAT(html, AllOf(HasSubstr("<h1>R&amp;D</h1>"), HasSubstr("<p class=\"note\">small</p>"),
                          HasSubstr("<h2>a &lt;b&gt;</h2>"),
                          HasSubstr("<td class=\"left\">a&amp;b</td><td>&quot;3&quot;</td>"),
                          HasSubstr("<p class=\"warning\">x &lt; y</p>"),
                          HasSubstr("<figure id=\"loss\">")));
}

TEST(HtmlOfTest, SeveralSectionsHaveContents) {
  EXPECT_THAT(HtmlOf(OneSection({})), Not(HasSubstr("<nav>")));
  const std::string html =
      WithoutScripts(HtmlOf({.title = "", .sections = {{.title = "a & b"}, {.title = "c"}}}));
  EXPECT_EQ(MarkupFault(html), "") << "links lead somewhere";
  EXPECT_THAT(html, HasSubstr("<a href=\"#section.0\">a &amp; b</a>\n"
                              "<a href=\"#section.1\">c</a>\n"));
}

TEST(HtmlOfTest, DrawingsAndListingsNeedNoScript) {
  const std::string html = HtmlOf(OneSection({Drawing{"<svg></svg>"}, Listing{"a < b\n  c"}}));
  EXPECT_EQ(MarkupFault(html), "");
  EXPECT_THAT(html,
              AllOf(HasSubstr("<svg></svg><pre>a &lt; b\n  c</pre>"), Not(HasSubstr("<script"))));
}

TEST(HtmlOfTest, ForbidsRequests) {
  EXPECT_THAT(HtmlOf({}), HasSubstr("content=\"default-src 'none'; script-src 'unsafe-inline'; "
                                    "style-src 'unsafe-inline'\""));
}

TEST(HtmlOfTest, DataCannotEndTheirScript) {
  LineChart chart;
  chart.lines.push_back({.name = "</script>", .points = {{0, 1}}});
  const std::string html = HtmlOf(OneSection({Chart{.id = "loss", .title = "", .body = chart}}));
  EXPECT_THAT(html, AllOf(HasSubstr("\\u003c/script>"), Not(HasSubstr("\"</script>"))));
}

TEST(HtmlOfTest, WhatIsNotFiniteIsAGap) {
  LineChart chart;
  chart.lines.push_back(
      {.name = "ddp",
       .points = {{0, 1.5}, {1, std::numeric_limits<double>::quiet_NaN()}, {2, 1.25}}});
  EXPECT_THAT(HtmlOf(OneSection({Chart{.id = "loss", .title = "", .body = chart}})),
              HasSubstr(R"([{"x":0.0,"y":1.5},{"x":1.0,"y":null},{"x":2.0,"y":1.25}])"));
}

TEST(HtmlOfDeathTest, TwoChartsOfOneIdAreRefused) {
  const Chart chart = {.id = "loss", .title = "", .body = BarChart()};
  EXPECT_DEATH(HtmlOf(OneSection({chart, chart})), "two charts loss");
}

}  // namespace
}  // namespace lockstep
