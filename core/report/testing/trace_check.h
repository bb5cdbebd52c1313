#pragma once

#include <string>

namespace lockstep {

// What is wrong with the text of a trace.json for its readers, chrome://tracing and Perfetto, which
// drop in silence what they do not understand. Empty: nothing. Held to the trace event format, and
// to what their importers make of it:
//
// - each process and thread is named, once, before all events; a thread's number is in one process;
// - of a thread, events come in order of time and nest, or lie apart, in the whole nanoseconds that
//   Perfetto computes with: it drops what overlaps; calls are a microsecond apart, to which
//   chrome://tracing rounds: it takes what then lies within another for its part;
// - a counter's samples come in order of time and have the same series;
// - an arrow has a start, an end that binds to the event around it ("bp": "e"), and perhaps steps
// in
//   between, in order of time; each lies in an event of communication of its own process; these are
//   the calls of one collective, or a message sent and received.
std::string TraceFault(const std::string& json);

}  // namespace lockstep
