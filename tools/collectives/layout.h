// Where everything stands in a picture; no colours, no markup.

#pragma once

#include <string>
#include <vector>

#include "tools/collectives/movement.h"
#include "tools/draw/svg.h"

namespace lockstep {

// What the ranks hold at one time, a row a rank.
struct LayoutSide {
  std::vector<Box> panels;              // by rank: the place for all of its parts
  std::vector<std::vector<Box>> cells;  // by rank and part
};

// From a cell before to a cell after. The last cell of a row is left by its right edge, those in
// front of it by their top and a lane above the row; the first cell of a row is entered by its left
// edge, those behind it from below: so no arrow passes over a cell.
struct Arrow {
  Cell from, to;
  std::string path;  // SVG path data
};

struct Layout {
  LayoutSide before, after;
  std::vector<Arrow> arrows;
  double right = 0, bottom = 0;  // of all of it, lanes included
};

struct LayoutOptions {
  double left = 0, top = 0;  // where it begins, lanes included
  double element_width = 0;
  double min_width = 0;  // what panels leave of it goes to the space for the arrows
};
Layout LayoutOf(const Movement& movement, const LayoutOptions& options);

}  // namespace lockstep
