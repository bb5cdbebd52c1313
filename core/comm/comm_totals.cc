#include "core/comm/comm_totals.h"

#include <string>

#include "absl/strings/string_view.h"

namespace lockstep {

CommTotal& CommTotal::operator+=(const CommTotal& other) {
  calls += other.calls;
  bytes += other.bytes;
  wire_bytes += other.wire_bytes;
  busy_nanos += other.busy_nanos;
  exposed_nanos += other.exposed_nanos;
  return *this;
}

CommTotal& CommTotal::operator-=(const CommTotal& other) {
  calls -= other.calls;
  bytes -= other.bytes;
  wire_bytes -= other.wire_bytes;
  busy_nanos -= other.busy_nanos;
  exposed_nanos -= other.exposed_nanos;
  return *this;
}

CommTotal CommTotals::All() const {
  CommTotal sum;
  for (const auto& [kind, total] : by_kind) sum += total;
  return sum;
}

CommTotal CommTotals::Of(Operation operation) const {
  CommTotal sum;
  for (const auto& [kind, total] : by_kind) {
    if (kind.first == operation) sum += total;
  }
  return sum;
}

CommTotal CommTotals::Of(absl::string_view label) const {
  CommTotal sum;
  for (const auto& [kind, total] : by_kind) {
    if (label == kind.second) sum += total;
  }
  return sum;
}

CommTotal CommTotals::Of(Operation operation, absl::string_view label) const {
  const auto found = by_kind.find({operation, std::string(label)});
  return found == by_kind.end() ? CommTotal() : found->second;
}

CommTotals CommTotals::Since(const CommTotals& mark) const {
  CommTotals difference;
  difference.in_flight_nanos = in_flight_nanos - mark.in_flight_nanos;
  for (const auto& [kind, total] : by_kind) {
    CommTotal since = total;
    const auto before = mark.by_kind.find(kind);
    if (before != mark.by_kind.end()) since -= before->second;
    if (since.calls != 0) difference.by_kind[kind] = since;
  }
  return difference;
}

}  // namespace lockstep
