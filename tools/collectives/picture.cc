#include "tools/collectives/picture.h"

#include <algorithm>  // std::max
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/collectives/catalogue.h"
#include "tools/collectives/layout.h"
#include "tools/collectives/text.h"
#include "tools/draw/palette.h"
#include "tools/draw/svg.h"
#include "tools/report/html.h"

namespace lockstep {
namespace {

constexpr double kTop = kHeaderHeight + 16;  // below the columns' heads
constexpr double kLineHeight = 20;
constexpr double kMinWidth = 500;  // of the panels and what is between: room for the lines of text
constexpr double kTextSize = TextStyle().size;
constexpr double kElementPadding = 18;
constexpr double kMinElementWidth = 34;

constexpr char kPanel[] = "#f3f5f8";

std::string ValueText(float x) { return absl::StrFormat("%g", x); }

double ElementWidth(const Demo& demo) {
  double widest = 0;
  for (const RankData* data : {&demo.before, &demo.after}) {
    for (const auto& parts : *data) {
      for (const auto& part : parts) {
        for (const float x : part) widest = std::max(widest, TextWidth(ValueText(x), kTextSize));
      }
    }
  }
  return std::max(kMinElementWidth, widest + kElementPadding);
}

// Which ranks a cell's contents come from.
using Origins = std::vector<int>;

// A white cell with a stripe in the colours of all origins, or one in the colour of its only one.
std::string CellGround(const Box& box, const Origins& origins) {
  if (origins.size() == 1) {
    return SvgRectangle(box, 5, absl::StrCat(FilledWith(origins[0]), " stroke-width=\"1.2\""));
  }
  std::string svg = SvgRectangle(
      box, 5, absl::StrFormat("fill=\"white\" stroke=\"%s\" stroke-width=\"1.2\"", kSoftInk));
  const double width = (box.width - 8) / static_cast<double>(origins.size());
  for (size_t i = 0; i < origins.size(); ++i) {
    const Box stripe = {box.x + 4 + width * static_cast<double>(i), box.bottom() - 7, width, 4};
    svg += SvgRectangle(stripe, 0, absl::StrFormat("fill=\"%s\"", Colour(origins[i])));
  }
  return svg;
}

std::string CellSvg(const Box& box, const std::vector<float>& elements, const Origins& origins) {
  std::string svg = CellGround(box, origins);
  const double width = box.width / static_cast<double>(elements.size());
  const double baseline = box.middle_y() + (origins.size() == 1 ? 4.5 : 2.5);
  for (size_t i = 0; i < elements.size(); ++i) {
    const double x = box.x + width * static_cast<double>(i);
    if (i > 0) {
      absl::StrAppendFormat(&svg,
                            "<path d=\"M%.1f %.1fV%.1f\" stroke=\"%s\" stroke-opacity=\"0.35\"/>\n",
                            x, box.y + 6, box.bottom() - 9, kSoftInk);
    }
    svg += SvgText(x + width / 2, baseline, ValueText(elements[i]), {.anchor = "middle"});
  }
  return svg;
}

// The panels of one side, and a dashed place where a rank has nothing.
std::string Panels(const LayoutSide& side) {
  std::string svg;
  for (size_t rank = 0; rank < side.panels.size(); ++rank) {
    const Box& panel = side.panels[rank];
    if (side.cells[rank].empty()) {
      svg += SvgRectangle(
          panel, 8, absl::StrFormat("fill=\"none\" stroke=\"%s\" stroke-dasharray=\"3 4\"", kLine));
    } else {
      svg += SvgRectangle(panel, 8, absl::StrFormat("fill=\"%s\"", kPanel));
    }
  }
  return svg;
}

// Before, each cell is its own rank's.
std::string CellsBefore(const Layout& layout, const Demo& demo) {
  std::string svg;
  for (size_t rank = 0; rank < demo.before.size(); ++rank) {
    for (size_t part = 0; part < demo.before[rank].size(); ++part) {
      svg += CellSvg(layout.before.cells[rank][part], demo.before[rank][part],
                     {static_cast<int>(rank)});
    }
  }
  return svg;
}

// After, each cell is of the ranks of the flow that ends in it.
std::string CellsAfter(const Layout& layout, const Demo& demo) {
  std::string svg;
  for (const auto& [sources, to] : demo.movement.flows) {
    Origins origins;
    for (const Cell& from : sources) origins.push_back(from.rank);
    svg += CellSvg(layout.after.cells[to.rank][to.part], demo.after[to.rank][to.part], origins);
  }
  return svg;
}

// One arrowhead a colour: markers cannot take that of their line everywhere. The names tell apart
// the pictures of one page.
std::string ArrowheadName(const Demo& demo, int rank) {
  return absl::StrCat(CollectiveOf(demo.options.operation).name, "-", rank);
}

std::string Arrowheads(const Demo& demo, const std::vector<Arrow>& arrows) {
  std::set<int> ranks;
  for (const Arrow& arrow : arrows) ranks.insert(arrow.from.rank);
  std::string svg = "<defs>\n";
  for (const int rank : ranks) {
    absl::StrAppendFormat(
        &svg,
        "<marker id=\"%s\" viewBox=\"0 0 8 8\" refX=\"7.5\" refY=\"4\" markerWidth=\"8\" "
        "markerHeight=\"8\" markerUnits=\"userSpaceOnUse\" orient=\"auto\">"
        "<path d=\"M0 0.8L8 4L0 7.2L1.6 4z\" fill=\"%s\"/></marker>\n",
        ArrowheadName(demo, rank), Colour(rank));
  }
  return svg + "</defs>\n";
}

bool Stays(const Arrow& arrow) { return arrow.from.rank == arrow.to.rank; }

std::string Arrows(const Demo& demo, const std::vector<Arrow>& arrows) {
  const bool crowded = arrows.size() > 36;
  std::string svg = absl::StrFormat("<g fill=\"none\" stroke-width=\"%g\" stroke-opacity=\"%g\">\n",
                                    crowded ? 1.1 : 1.6, crowded ? 0.7 : 0.9);
  for (const Arrow& arrow : arrows) {
    absl::StrAppendFormat(&svg, "<path d=\"%s\" stroke=\"%s\"%s marker-end=\"url(#%s)\"/>\n",
                          arrow.path, Colour(arrow.from.rank),
                          Stays(arrow) ? " stroke-dasharray=\"4 3\"" : "",
                          ArrowheadName(demo, arrow.from.rank));
  }
  return svg + "</g>\n";
}

std::string RankLabels(const Layout& layout) {
  std::string svg;
  for (size_t rank = 0; rank < layout.before.panels.size(); ++rank) {
    const double y = layout.before.panels[rank].middle_y();
    svg += SvgRankLabel(kMargin, y, rank) + SvgRankLabel(layout.right + 14, y, rank);
  }
  return svg;
}

// What the lines and stripes mean, as far as they occur.
std::string Key(const Demo& demo, const std::vector<Arrow>& arrows) {
  std::string key = "colour: the rank that it comes from";
  const auto reduces = [](const Flow& flow) { return flow.from.size() > 1; };
  if (std::ranges::any_of(demo.movement.flows, reduces)) {
    key += "  ·  stripes: the ranks that went into it";
  }
  if (std::ranges::any_of(arrows, Stays)) key += "  ·  dashed: stays on its rank";
  return key;
}

constexpr char kWhat[] =
    "What ranks do together, each operation run through the communicator and checked against a "
    "serial computation.";
constexpr char kNotation[] =
    "n ranks, 0 to n−1; rank i holds xᵢ; X is all of them one after the other; ⊕ combines elements "
    "(sum, product, min, max, average), and y is the result. B is the payload in bytes, α the time "
    "of a message whatever its size, β the time of a byte.";

Section SectionOf(const Demo& demo) {
  const Collective& collective = CollectiveOf(demo.options.operation);
  return {.title = collective.name,
          .items = {Paragraph{collective.summary}, Drawing{Picture(demo)}, Listing{DataText(demo)},
                    Paragraph{absl::StrCat("Time: ", collective.time, "; sends: ", collective.sends,
                                           "; here: ", SentText(demo), ".")},
                    Paragraph{absl::StrCat("Strategies: ", collective.users)}}};
}

}  // namespace

std::string Picture(const Demo& demo) {
  const Collective& collective = CollectiveOf(demo.options.operation);
  const Layout layout = LayoutOf(demo.movement, {.left = kMargin + kRankLabelWidth,
                                                 .top = kTop,
                                                 .element_width = ElementWidth(demo),
                                                 .min_width = kMinWidth});
  const double legend = layout.bottom + 18;
  const double width = layout.right + kRankLabelWidth + kMargin;
  const double height = legend + 4 * kLineHeight + 24;
  std::string svg = OpenPicture(width, height, Title(demo.options), collective.notation);
  svg += Arrowheads(demo, layout.arrows);
  const TextStyle head = {.anchor = "middle", .weight = "bold"};
  svg += SvgText(layout.before.panels[0].middle_x(), 92, "before", head);
  svg += SvgText(layout.after.panels[0].middle_x(), 92, "after", head);

  svg += Panels(layout.before) + Panels(layout.after) + RankLabels(layout);
  svg += Arrows(demo, layout.arrows);
  svg += CellsBefore(layout, demo) + CellsAfter(layout, demo);

  absl::StrAppendFormat(&svg, "<path d=\"M%.1f %.1fH%.1f\" stroke=\"%s\"/>\n", kMargin, legend,
                        width - kMargin, kLine);
  double y = legend + 4;
  svg += SvgText(kMargin, y += kLineHeight, absl::StrCat("time: ", collective.time), {});
  svg += SvgText(kMargin, y += kLineHeight, absl::StrCat("sends: ", collective.sends), {});
  svg += SvgText(kMargin, y += kLineHeight, SentText(demo), {.size = 12, .colour = kSoftInk});
  svg += SvgText(kMargin, y += kLineHeight, Key(demo, layout.arrows),
                 {.size = 12, .colour = kSoftInk});
  return svg + "</svg>\n";
}

std::string Page(const std::vector<Demo>& demos) {
  Report report = {.title = "Collectives"};
  report.sections.push_back(
      {.title = "Notation", .items = {Paragraph{kWhat}, Paragraph{kNotation}}});
  for (const Demo& demo : demos) report.sections.push_back(SectionOf(demo));
  return HtmlOf(report);
}

}  // namespace lockstep
