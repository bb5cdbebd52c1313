#include "core/run/leg/trace_communication.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lockstep {

void TraceCommunication(const std::vector<LedgerEntry>& entries, Trace& trace) {
  for (const LedgerEntry& entry : entries) {
    const Operation operation = entry.signature.operation;
    // With its members: a mesh has several groups of one name.
    const std::string group = entry.group->ToString();
    TraceEvent event = {.name = absl::StrCat(Name(operation), " ", entry.label),
                        .track = TraceTrack::kCommunication,
                        .start_nanos = entry.start_nanos,
                        .duration_nanos = entry.end_nanos - entry.start_nanos,
                        .bytes = entry.bytes,
                        .sequence = entry.sequence,
                        .detail = group};
    const int self = entry.group->rank, peer = entry.signature.root;
    if (operation == Operation::kSend) {
      event.flow = absl::StrCat(group, " ", self, ">", peer, " ", entry.sequence);
      event.flow_end = FlowEnd::kSource;
    } else if (operation == Operation::kRecv) {
      event.flow = absl::StrCat(group, " ", peer, ">", self, " ", entry.sequence);
      event.flow_end = FlowEnd::kTarget;
    } else {
      event.flow = absl::StrCat(group, " ", entry.sequence);
    }
    trace.Add(std::move(event));
  }
}

}  // namespace lockstep
