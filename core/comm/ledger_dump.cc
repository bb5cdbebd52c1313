// The two post-mortem forms of a ledger.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/clock.h"
#include "core/comm/ledger.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

const char* Name(LedgerEntry::State state) {
  switch (state) {
    case LedgerEntry::State::kInFlight:
      return "in flight";
    case LedgerEntry::State::kDone:
      return "done";
    case LedgerEntry::State::kFailed:
      return "failed";
  }
  return "?";
}

double Seconds(int64_t nanos) { return static_cast<double>(nanos) * 1e-9; }

}  // namespace

std::string Ledger::ToText() const {
  const CommTotals totals = Mark();
  const std::vector<LedgerEntry> entries = Recent();
  std::string text =
      absl::StrFormat("communication of rank %d\n\n%-15s %-16s %9s %12s %12s %9s %9s\n", rank_,
                      "operation", "label", "calls", "payload", "sent", "busy", "exposed");
  for (const auto& [kind, total] : totals.by_kind) {
    absl::StrAppendFormat(
        &text, "%-15s %-16s %9d %12s %12s %9s %9s\n", lockstep::Name(kind.first), kind.second,
        total.calls, FormatBytes(total.bytes), FormatBytes(static_cast<int64_t>(total.wire_bytes)),
        FormatDuration(Seconds(total.busy_nanos)), FormatDuration(Seconds(total.exposed_nanos)));
  }
  absl::StrAppend(&text, "\nlast calls; times are seconds of the monotonic clock\n");
  for (const LedgerEntry& entry : entries) {
    absl::StrAppendFormat(&text, "%.6f ", Seconds(entry.start_nanos));
    if (entry.state == LedgerEntry::State::kInFlight) {
      absl::StrAppendFormat(&text, "%-12s", "-");
    } else {
      absl::StrAppendFormat(&text, "+%-11s",
                            FormatDuration(Seconds(entry.end_nanos - entry.start_nanos)));
    }
    absl::StrAppendFormat(&text, "%-10s%s\n", Name(entry.state), entry.ToString());
  }
  return text;
}

std::string Ledger::ToJson() const {
  using nlohmann::ordered_json;
  ordered_json totals = ordered_json::array();
  for (const auto& [kind, total] : Mark().by_kind) {
    totals.push_back({{"operation", lockstep::Name(kind.first)},
                      {"label", kind.second},
                      {"calls", total.calls},
                      {"bytes", total.bytes},
                      {"wire_bytes", total.wire_bytes},
                      {"busy_nanos", total.busy_nanos},
                      {"exposed_nanos", total.exposed_nanos}});
  }
  ordered_json calls = ordered_json::array();
  for (const LedgerEntry& entry : Recent()) {
    calls.push_back({{"sequence", entry.sequence},
                     {"operation", lockstep::Name(entry.signature.operation)},
                     {"arguments", DescribeArguments(entry.signature)},
                     {"label", entry.label},
                     {"group", entry.group->name},
                     {"members", entry.group->members},
                     {"dtype", lockstep::Name(entry.signature.dtype)},
                     {"count", entry.signature.count},
                     {"bytes", entry.bytes},
                     {"wire_bytes", entry.wire_bytes},
                     {"state", Name(entry.state)},
                     {"start_nanos", entry.start_nanos},
                     {"end_nanos", entry.end_nanos},
                     {"exposed_nanos", entry.exposed_nanos}});
  }
  return ordered_json{{"rank", rank_}, {"totals", totals}, {"calls", calls}}.dump(1);
}

}  // namespace lockstep
