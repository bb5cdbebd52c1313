#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "core/comm/operation.h"

namespace lockstep {

// Sums over finished calls of one rank.
struct CommTotal {
  int64_t calls = 0;
  int64_t bytes = 0;          // payload
  double wire_bytes = 0;      // what the rank must send, by WireBytes (signature.h)
  int64_t busy_nanos = 0;     // from call to end, added up; calls in flight together count twice
  int64_t exposed_nanos = 0;  // that the rank spent blocked, waiting

  CommTotal& operator+=(const CommTotal& other);
  CommTotal& operator-=(const CommTotal& other);
};

// Totals by operation and label.
struct CommTotals {
  std::map<std::pair<Operation, std::string>, CommTotal> by_kind;
  // How long at least one call was in flight, failed ones included.
  int64_t in_flight_nanos = 0;

  CommTotal All() const;
  CommTotal Of(Operation operation) const;
  CommTotal Of(absl::string_view label) const;
  CommTotal Of(Operation operation, absl::string_view label) const;

  // What came after `mark`, totals of the same ledger taken earlier; kinds without calls are left
  // out.
  CommTotals Since(const CommTotals& mark) const;
};

}  // namespace lockstep
