#include "tools/collectives/layout.h"

#include <algorithm>  // std::max

#include "absl/strings/str_format.h"

namespace lockstep {
namespace {

constexpr double kCellHeight = 32;
constexpr double kCellGap = 6;         // between the parts of a rank
constexpr double kPadding = 6;         // between a panel's edge and its cells
constexpr double kRowGap = 16;         // between panels, where no lanes ask for more
constexpr double kLaneGap = 7;         // between a panel and the nearest lane
constexpr double kCorner = 5;          // radius of a lane's turn into a cell
constexpr double kArrivalSpread = 26;  // of the arrows that go into one cell, from top to bottom
constexpr double kEndGap = 1.5;        // between an arrow's ends and the cells' edges

// Lanes come closer together where there are many.
double LaneSpacing(int ranks) { return ranks <= 4 ? 7 : ranks <= 8 ? 5 : 4; }

double PartsWidth(const std::vector<int64_t>& parts, double element_width) {
  double width = 2 * kPadding;
  for (const int64_t elements : parts) {
    width += static_cast<double>(elements) * element_width + kCellGap;
  }
  return width - kCellGap;
}

// Width of the widest rank.
double SideWidth(const std::vector<std::vector<int64_t>>& side, double element_width) {
  double width = 2 * kPadding + element_width;  // a place for a part, also where there is none
  for (const auto& parts : side) width = std::max(width, PartsWidth(parts, element_width));
  return width;
}

int Lanes(const std::vector<std::vector<int64_t>>& side) {
  size_t lanes = 0;
  for (const auto& parts : side) lanes = std::max(lanes, parts.size());
  return std::max(static_cast<int>(lanes) - 1, 0);
}

LayoutSide Place(const std::vector<std::vector<int64_t>>& side, double x, double y, double pitch,
                 double element_width) {
  LayoutSide result;
  const double width = SideWidth(side, element_width);
  for (const auto& parts : side) {
    result.panels.push_back({x, y, width, kCellHeight + 2 * kPadding});
    std::vector<Box>& cells = result.cells.emplace_back();
    double next = x + kPadding;
    for (const int64_t elements : parts) {
      cells.push_back(
          {next, y + kPadding, static_cast<double>(elements) * element_width, kCellHeight});
      next = cells.back().right() + kCellGap;
    }
    y += pitch;
  }
  return result;
}

// From the cell to the right edge of the panels, and there at height `y`.
std::string Departure(const LayoutSide& side, const Cell& cell, double spacing, double& y) {
  const Box& box = side.cells[cell.rank][cell.part];
  const Box& panel = side.panels[cell.rank];
  const int behind = static_cast<int>(side.cells[cell.rank].size()) - 1 - cell.part;
  if (behind == 0) {
    y = box.middle_y();
    return absl::StrFormat("M%.1f %.1fH%.1f", box.right() + kEndGap, y, panel.right());
  }
  const double x = box.middle_x();
  y = panel.y - kLaneGap - spacing * (behind - 1);
  return absl::StrFormat("M%.1f %.1fV%.1fQ%.1f %.1f %.1f %.1fH%.1f", x, box.y - kEndGap,
                         y + kCorner, x, y, x + kCorner, y, panel.right());
}

// From the left edge of the panels, there at height `y`, to the cell; as number `index` of `count`
// arrows that end in it.
std::string Arrival(const LayoutSide& side, const Cell& cell, double spacing, size_t index,
                    size_t count, double& y) {
  const Box& box = side.cells[cell.rank][cell.part];
  if (cell.part == 0) {
    const double place = (static_cast<double>(index) + 0.5) / static_cast<double>(count) - 0.5;
    y = box.middle_y() + place * kArrivalSpread;
    return absl::StrFormat("H%.1f", box.x - kEndGap);
  }
  const double x = box.middle_x();
  y = side.panels[cell.rank].bottom() + kLaneGap + spacing * (cell.part - 1);
  return absl::StrFormat("H%.1fQ%.1f %.1f %.1f %.1fV%.1f", x - kCorner, x, y, x, y - kCorner,
                         box.bottom() + kEndGap);
}

}  // namespace

Layout LayoutOf(const Movement& movement, const LayoutOptions& options) {
  const int ranks = static_cast<int>(movement.before.size());
  const double spacing = LaneSpacing(ranks);
  const double lanes_above = spacing * Lanes(movement.before);
  const double lanes_below = spacing * Lanes(movement.after);
  const double pitch = kCellHeight + 2 * kPadding + kRowGap + std::max(lanes_above, lanes_below);
  const double width_before = SideWidth(movement.before, options.element_width);
  const double width_after = SideWidth(movement.after, options.element_width);
  // Steep curves are hard to follow: the taller, the wider.
  const double between =
      std::max({120 + 0.3 * pitch * (ranks - 1), options.min_width - width_before - width_after});
  const double y = options.top + lanes_above;

  Layout layout;
  layout.before = Place(movement.before, options.left, y, pitch, options.element_width);
  const double right = options.left + width_before + between;
  layout.after = Place(movement.after, right, y, pitch, options.element_width);

  layout.right = right + width_after;
  layout.bottom = layout.after.panels.back().bottom() + kLaneGap + lanes_below;

  const double left = options.left + width_before;
  const double middle = (left + right) / 2;
  for (const Flow& flow : movement.flows) {
    for (size_t i = 0; i < flow.from.size(); ++i) {
      const Cell& from = flow.from[i];
      double y_left, y_right;
      const std::string departure = Departure(layout.before, from, spacing, y_left);
      const std::string arrival =
          Arrival(layout.after, flow.to, spacing, i, flow.from.size(), y_right);
      layout.arrows.push_back(
          {.from = from,
           .to = flow.to,
           .path = absl::StrFormat("%sC%.1f %.1f %.1f %.1f %.1f %.1f%s", departure, middle, y_left,
                                   middle, y_right, right, y_right, arrival)});
    }
  }
  return layout;
}

}  // namespace lockstep
