#pragma once

#include <string>

#include "tools/report/report.h"

namespace lockstep {

// The titles and all rows, a line each, two spaces in from the margin.
std::string TextOf(const Table& table);

// A report for a terminal: tables and paragraphs. All else is left to the page, and so are sections
// that have nothing else.
std::string TextOf(const Report& report);

}  // namespace lockstep
