// The timeline of all ranks as a file that ui.perfetto.dev and chrome://tracing open.

#pragma once

#include <span>
#include <string>

#include "absl/status/status.h"
#include "core/report/trace.h"

namespace lockstep {

// Writes the events of all ranks as JSON in Chrome's trace event format ("Trace Event Format", the
// document of the catapult project): a process a rank; threads for compute, communication and data;
// complete events in microseconds since the earliest event; arrows between events of one flow; a
// counter "memory" with live bytes by class.
//
// Calls in flight at once overlap in time, which no thread of the format can show: communication
// takes as many threads as a rank had calls in flight, or so close that readers could not tell them
// apart. Atomic. The ranks' events must be from
// clocks that agree, as those of one machine do.
absl::Status WriteChromeTrace(const std::string& path, std::span<const TraceRecord* const> traces);

}  // namespace lockstep
