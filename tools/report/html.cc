#include "tools/report/html.h"

#include <cmath>
#include <set>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"
#include "tools/draw/palette.h"
#include "tools/draw/svg.h"
#include "tools/report/page.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// The page may run the scripts that stand in it, and load nothing.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'";

// By Quantity, LineChart::Style and Paragraph::Tone, as the page's script and style know them.
constexpr const char* kQuantities[] = {"number", "seconds", "bytes"};
constexpr const char* kStyles[] = {"plain", "wide", "in turns"};
constexpr const char* kTones[] = {"", " class=\"note\"", " class=\"warning\""};

const char* Name(Quantity quantity) { return kQuantities[static_cast<int>(quantity)]; }

Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json AxisJson(const LineChart::Axis& axis) {
  return {
      {"title", axis.title}, {"quantity", Name(axis.quantity)}, {"logarithmic", axis.logarithmic},
      {"whole", axis.whole}, {"fromZero", axis.from_zero},      {"leastRange", axis.least_range}};
}

Json BodyJson(const LineChart& chart) {
  Json lines = Json::array();
  for (const LineChart::Line& line : chart.lines) {
    Json points = Json::array();
    for (const auto& [x, y] : line.points) points.push_back({{"x", Number(x)}, {"y", Number(y)}});
    lines.push_back({{"name", line.name},
                     {"colour", Colour(line.colour)},
                     {"tint", Tint(line.colour, 0.6)},
                     {"style", kStyles[static_cast<int>(line.style)]},
                     {"points", points}});
  }
  return {{"kind", "lines"},
          {"x", AxisJson(chart.x)},
          {"y", AxisJson(chart.y)},
          {"stacked", chart.stacked},
          {"lines", lines}};
}

Json BodyJson(const BarChart& chart) {
  Json segments = Json::array();
  for (const BarChart::Segment& segment : chart.segments) {
    Json values = Json::array();
    for (const double value : segment.values) values.push_back(Number(value));
    segments.push_back(
        {{"name", segment.name}, {"colour", Colour(segment.colour)}, {"values", values}});
  }
  return {{"kind", "bars"},
          {"quantity", Name(chart.quantity)},
          {"rows", chart.rows},
          {"segments", segments}};
}

Json BodyJson(const SpanChart& chart) {
  Json kinds = Json::array();
  for (const SpanChart::Kind& kind : chart.kinds) {
    Json spans = Json::array();
    for (const SpanChart::Span& span : kind.spans) {
      spans.push_back(
          {{"x", {span.begin, span.end}}, {"y", chart.rows.at(span.row)}, {"label", span.label}});
    }
    kinds.push_back({{"name", kind.name},
                     {"colour", kind.pale ? Tint(kind.colour, 0.75) : Colour(kind.colour)},
                     {"spans", spans}});
  }
  return {{"kind", "spans"}, {"seconds", chart.seconds}, {"rows", chart.rows}, {"kinds", kinds}};
}

// Pixels: a row of a chart with rows needs its place, and so do the names of its series.
int HeightOf(size_t rows, size_t series) {
  constexpr size_t kAxis = 60, kRow = 24, kKeyLine = 22, kSeriesInAKeyLine = 7;
  const size_t key_lines = (series + kSeriesInAKeyLine - 1) / kSeriesInAKeyLine;
  return static_cast<int>(kAxis + kRow * rows + kKeyLine * key_lines);
}

int Height(const LineChart& /*chart*/) { return 300; }
int Height(const BarChart& chart) { return HeightOf(chart.rows.size(), chart.segments.size()); }
int Height(const SpanChart& chart) { return HeightOf(chart.rows.size(), chart.kinds.size()); }

std::string Markup(const Table& table) {
  const auto cell_class = [&table](size_t column) {
    return table.columns[column].align == Table::Align::kLeft ? " class=\"left\"" : "";
  };
  std::string html = "<table>\n";
  if (!table.title.empty()) {
    absl::StrAppend(&html, "<caption>", Escaped(table.title), "</caption>\n");
  }
  html += "<thead><tr>";
  for (size_t i = 0; i < table.columns.size(); ++i) {
    absl::StrAppend(&html, "<th", cell_class(i), ">", Escaped(table.columns[i].title), "</th>");
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : table.rows) {
    html += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&html, "<td", cell_class(i), ">", Escaped(row[i]), "</td>");
    }
    html += "</tr>\n";
  }
  return html + "</tbody>\n</table>\n";
}

std::string Markup(const Paragraph& paragraph) {
  return absl::StrCat("<p", kTones[static_cast<int>(paragraph.tone)], ">", Escaped(paragraph.text),
                      "</p>\n");
}

std::string Markup(const Chart& chart) {
  const int height = std::visit([](const auto& any) { return Height(any); }, chart.body);
  return absl::StrCat("<figure id=\"", chart.id, "\">\n<figcaption>", Escaped(chart.title),
                      "</figcaption>\n<div class=\"plot\" style=\"height: ", height,
                      "px\"><canvas></canvas></div>\n</figure>\n");
}

std::string Markup(const Drawing& drawing) { return drawing.svg; }

std::string Markup(const Listing& listing) {
  return absl::StrCat("<pre>", Escaped(listing.text), "</pre>\n");
}

std::string SectionId(size_t index) { return absl::StrCat("section.", index); }

// Where to find what, unless there is only one thing.
std::string Contents(const Report& report) {
  if (report.sections.size() < 2) return "";
  std::string html = "<nav>\n";
  for (size_t i = 0; i < report.sections.size(); ++i) {
    absl::StrAppend(&html, "<a href=\"#", SectionId(i), "\">", Escaped(report.sections[i].title),
                    "</a>\n");
  }
  return html + "</nav>\n";
}

// As the text of a <script>, which "</script" would end.
std::string ForScript(const Json& json) {
  return absl::StrReplaceAll(json.dump(-1, ' ', false, Json::error_handler_t::replace),
                             {{"<", "\\u003c"}});
}

}  // namespace

std::string HtmlOf(const Report& report) {
  Json charts = Json::object();
  std::string body = absl::StrCat("<h1>", Escaped(report.title), "</h1>\n", Contents(report));
  for (size_t i = 0; i < report.sections.size(); ++i) {
    const Section& section = report.sections[i];
    absl::StrAppend(&body, "<section id=\"", SectionId(i), "\">\n<h2>", Escaped(section.title),
                    "</h2>\n");
    for (const auto& item : section.items) {
      body += std::visit([](const auto& any) { return Markup(any); }, item);
      const auto* chart = std::get_if<Chart>(&item);
      if (chart == nullptr) continue;
      CHECK(!charts.contains(chart->id)) << "two charts " << chart->id;
      charts[chart->id] = std::visit([](const auto& any) { return BodyJson(any); }, chart->body);
    }
    body += "</section>\n";
  }
  if (!charts.empty()) {
    absl::StrAppend(&body, "<script type=\"application/json\" id=\"charts\">", ForScript(charts),
                    "</script>\n<script>", kChartLibrary, "</script>\n<script>", kPageScript,
                    "</script>\n");
  }
  return absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"",
      kPolicy, "\"/>\n<title>", Escaped(report.title), "</title>\n<style>", kPageStyle,
      "</style>\n</head>\n<body>\n", body, "</body>\n</html>\n");
}

}  // namespace lockstep
