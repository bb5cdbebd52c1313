#pragma once

#include <string>

#include "tools/report/report.h"

namespace lockstep {

// A report as one HTML document that holds all it needs, the library that draws its charts, if it
// has any, included: it opens without a network, and forbids the browser any request (its content
// security policy). Equal reports give equal bytes.
//
// Each chart is a <figure> that carries its id, with one <canvas>.
std::string HtmlOf(const Report& report);

}  // namespace lockstep
