// A page as people see it: opened in Chromium. Carries the tag "browser" (.bazelrc).

#include "tools/browser/browser.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/browser/testing/requests.h"
#include "tools/experiment/paths.h"
#include "tools/report/html.h"
#include "tools/report/pictures.h"
#include "tools/report/testing/chart_pixels.h"

namespace lockstep {
namespace {

using ::testing::IsEmpty;

LineChart Curves() {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  LineChart chart = {.x = {"step"}, .y = {"loss"}};
  chart.lines = {
      {"single", 0, {{0, 3}, {1, 2}, {2, 1}}, LineChart::Style::kWide},
      {"ddp", 1, {{0, 3}, {1, 2}, {2, 1}}, LineChart::Style::kInTurns},
      {"fsdp", 2, {{0, 3}, {1, 2}, {2, 1}}, LineChart::Style::kInTurns},
      {"tp", 3, {{0, 3.1}, {1, 2.1}, {2, nan}}},
  };
  return chart;
}

LineChart ZeroDifferences() {
  LineChart chart = {.x = {"step"}, .y = {.title = "difference", .least_range = 1e-7}};
  chart.lines = {{"ddp", 1, {{0, 0}, {1, 0}}, LineChart::Style::kInTurns}};
  return chart;
}

LineChart Scales() {
  LineChart chart = {.x = {"step"}, .y = {.title = "scale", .logarithmic = true}};
  chart.lines = {{"single", 0, {{0, 65536}, {1, 32768}, {2, 65536}}}};
  return chart;
}

LineChart Areas() {
  LineChart chart = {.x = {"time", Quantity::kSeconds},
                     .y = {.quantity = Quantity::kBytes, .from_zero = true},
                     .stacked = true};
  chart.lines = {{"parameters", 0, {{0, 64}, {0.5, 64}, {1, 64}}},
                 {"activations", 3, {{0, 0}, {0.5, 128}, {1, 0}}}};
  return chart;
}

BarChart Bars() {
  return {
      .quantity = Quantity::kBytes,
      .rows = {"ddp, rank 0", "ddp, rank 1"},
      .segments = {{"parameters", 0, {1 << 20, 1 << 20}}, {"gradients", 1, {1 << 19, 1 << 20}}}};
}

SpanChart Spans() {
  return {.seconds = 0.01,
          .rows = {"rank 0", "rank 1"},
          .kinds = {{"forward", 0, false, {{0, 0, 0.004, "a"}, {1, 0.004, 0.008, "b"}}},
                    {"all_reduce", 3, true, {{1, 0.0081, 0.00811, "an instant"}}}}};
}

Report EveryKind() {
  return {
      .title = "Every kind of chart",
      .sections = {
          {.title = "charts",
           .items = {Chart{"loss", "Loss", Curves()},
                     Chart{"difference", "Difference", ZeroDifferences()},
                     Chart{"scale", "Scale", Scales()}, Chart{"areas", "Memory over time", Areas()},
                     Chart{"bars", "Memory", Bars()}, Chart{"spans", "Timeline", Spans()}}}}};
}

class BrowserTest : public testing::Test {
 protected:
  BrowserTest() : scratch_(TemporaryDirectory::Create().value()) {}

  static std::set<std::string> RequestsOf(const std::string& html) {
    const auto requests = lockstep::RequestsOf(html);
    EXPECT_TRUE(requests.ok()) << requests.status();
    return requests.value_or(std::set<std::string>{"?"});
  }

  TemporaryDirectory scratch_;
};

TEST_F(BrowserTest, EveryChartDrawsAllItsSeries) {
  const auto pixels = ChartPixels(HtmlOf(EveryKind()));
  ASSERT_TRUE(pixels.ok()) << pixels.status();
  EXPECT_EQ(pixels->size(), 6u);
  EXPECT_EQ(BlankSeries(*pixels), "");
  EXPECT_EQ(pixels->at("loss").size(), 4u);
  EXPECT_EQ(pixels->at("spans").size(), 2u);
}

// The labels of rows and values that are wider than their place.
constexpr char kFindCutLabels[] = R"(
  const cut = [];
  for (const canvas of document.querySelectorAll('figure canvas')) {
    const scale = Chart.getChart(canvas).scales.y, pen = canvas.getContext('2d');
    pen.font = Chart.defaults.font.size + 'px ' + Chart.defaults.font.family;
    for (const {label} of scale.ticks) {
      if (pen.measureText(label).width > scale.width) cut.push(label);
    }
  }
  return cut;
)";

TEST_F(BrowserTest, LabelsAreNotCut) {
  BarChart bars = Bars();
  bars.rows = {"fsdp_pipe_of_somebody (dp=2 tp=2), ranks 0 and 1", std::string(200, 'm')};
  const auto cut = ResultOfScript(
      HtmlOf({.title = "",
              .sections = {{.title = "",
                            .items = {Chart{"loss", "", Curves()}, Chart{"bars", "", bars},
                                      Chart{"spans", "", Spans()}}}}}),
      kFindCutLabels);
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(cut->dump(), "[]");
}

TEST_F(BrowserTest, LogarithmicAxesAreMarkedAtOneTwoAndFive) {
  constexpr char kMarks[] =
      "return Chart.getChart(document.querySelector('figure canvas')).scales.y.ticks"
      ".map(({value}) => value);";
  const auto marks = [&](double low, double high) {
    LineChart chart = Scales();
    chart.lines[0].points = {{0, low}, {1, high}};
    const auto result = ResultOfScript(
        HtmlOf({.title = "", .sections = {{.title = "", .items = {Chart{"scale", "", chart}}}}}),
        kMarks);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->dump() : "";
  };
  EXPECT_EQ(marks(256, 8192), "[100,200,500,1000,2000,5000]");
  EXPECT_EQ(marks(61, 69), "[10,20,50]");
}

// The tests of pixels can see a chart that stays blank.
TEST_F(BrowserTest, ABlankChartWouldBeSeen) {
  LineChart empty = Curves();
  for (LineChart::Line& line : empty.lines) line.points.clear();
  const auto pixels = ChartPixels(
      HtmlOf({.title = "", .sections = {{.title = "", .items = {Chart{"a", "", empty}}}}}));
  ASSERT_TRUE(pixels.ok()) << pixels.status();
  EXPECT_EQ(BlankSeries(*pixels), "a: ddp, a: fsdp, a: single, a: tp");
}

TEST_F(BrowserTest, NoRequestLeavesThePage) {
  EXPECT_THAT(RequestsOf(HtmlOf(EveryKind())), IsEmpty());
}

// The test above can see a request.
TEST_F(BrowserTest, ARequestWouldBeSeen) {
  const std::string address = "http://lockstep.invalid/picture.png";
  const std::string html = absl::StrCat("<html><body><img src=\"", address, "\"/></body></html>");
  EXPECT_TRUE(RequestsOf(html).contains(address));
}

// Even a page that somebody has put a request into makes none.
TEST_F(BrowserTest, ThePagesPolicyForbidsRequests) {
  std::string html = HtmlOf(EveryKind());
  html.insert(html.rfind("</body>"),
              "<script>const image = new Image();"
              "image.src = 'http://lockstep.invalid/picture.png';</script>");
  EXPECT_THAT(RequestsOf(html), IsEmpty());
}

TEST_F(BrowserTest, PicturesArePngFilesOfThePageAndEachChart) {
  const auto pictures = WritePictures(HtmlOf(EveryKind()), scratch_.path() + "/report");
  ASSERT_TRUE(pictures.ok()) << pictures.status();
  ASSERT_EQ(pictures->size(), 7u);
  EXPECT_EQ((*pictures)[0], scratch_.path() + "/report.png");
  for (const std::string& path : *pictures) {
    EXPECT_TRUE(ReadFile(path).value().starts_with("\x89PNG")) << path;
  }
}

}  // namespace
}  // namespace lockstep
