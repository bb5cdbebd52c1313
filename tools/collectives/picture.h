// A demo as a picture, and all demos on one page.

#pragma once

#include <string>
#include <vector>

#include "tools/collectives/demo.h"

namespace lockstep {

// An SVG document, complete in itself (no scripts, fonts or styles from elsewhere) and on a white
// ground, so that it reads in a dark page too: what the ranks hold before on the left, after on
// the right, a row a rank; cells in the colour of the rank that their contents come from, or
// striped in the colours of those that went into a reduction; an arrow from each cell to each cell
// that it flows into, dashed where it stays on its rank; the cost below. Equal demos give equal
// bytes.
std::string Picture(const Demo& demo);

// An HTML document, complete in itself: for each demo what the operation does, its picture, the
// data before and after, what it costs, and which strategy uses it.
std::string Page(const std::vector<Demo>& demos);

}  // namespace lockstep
