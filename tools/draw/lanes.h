// Who does what when: a row of bars a rank, over an axis of time.

#pragma once

#include <string>
#include <vector>

#include "tools/draw/palette.h"

namespace lockstep {

struct Lanes {
  struct Bar {
    double begin, end;
    const WorkKind* work;   // what it is, for its colour and the key
    std::string number;     // in the bar, where that is wide enough; may be empty
    std::string tooltip;    // under the pointer
    double paleness = 0.8;  // share of white in its colour
  };
  std::string title, subtitle;
  double total = 0;       // time that the rows show, from 0
  std::string unit = {};  // behind the axis's numbers, such as " ms"
  double width = 0;       // of the rows, in pixels
  std::vector<std::vector<Bar>> ranks = {};
  std::string remark = {};  // behind the key
};

// An SVG document, complete in itself: the bars to scale, and below them a key of the kinds of work
// that occur, in the order of their colours. Equal lanes give equal bytes.
std::string SvgOf(const Lanes& lanes);

}  // namespace lockstep
