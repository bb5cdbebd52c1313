#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/comm/comm_totals.h"
#include "core/comm/group_info.h"
#include "core/comm/operation.h"
#include "core/comm/signature.h"

namespace lockstep {

// One call of one rank.
struct LedgerEntry {
  enum class State { kInFlight, kDone, kFailed };

  // Counted from 0 by each group, the same for all members; of messages, by each pair and
  // direction.
  int64_t sequence = 0;
  Signature signature;
  std::string label;
  std::shared_ptr<const GroupInfo> group;
  State state = State::kInFlight;
  int64_t bytes = 0;          // payload
  double wire_bytes = 0;      // by WireBytes
  int64_t start_nanos = 0;    // of the call, by NowNanos (core/base/clock.h)
  int64_t end_nanos = 0;      // when its result was there; 0 in flight
  int64_t exposed_nanos = 0;  // that the rank spent blocked in Wait

  // As DescribeCall.
  std::string ToString() const;
};

// "all_reduce (f32 x 1024, sum, "gradients")", followed by " on cuda" where that is where it moves
std::string DescribeCall(const Signature& signature, absl::string_view label);
// "all_reduce #11 of 'dp' [0, 2] (f32 x 1024, sum, "gradients")"
std::string DescribeCall(const Signature& signature, absl::string_view label,
                         const GroupInfo& group, int64_t sequence);

// The book of all communication of one rank (contract 6 of the design). Totals are kept for ever;
// single entries for the calls in flight, the most recent ones, and all of a window being traced.
//
//   const CommTotals mark = ledger.Mark();
//   ... one step ...
//   double sent = ledger.Since(mark).Of("gradients").wire_bytes;
//
// Thread-safe: the rank's threads write, and peers that report a failure read.
class Ledger {
 public:
  // `recent` is how many finished entries are kept.
  explicit Ledger(int rank, int recent = 256) : rank_(rank), recent_(recent) {}
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  int rank() const { return rank_; }

  // --- for backends; about 0.1 us each -----------------------------------------------------------
  // Enters a call and returns its id.
  int64_t Begin(std::shared_ptr<const GroupInfo> group, int64_t sequence,
                const Signature& signature, absl::string_view label);
  // The call is over since `end_nanos`. Only calls that succeed count in the totals.
  void Finish(int64_t id, LedgerEntry::State state, int64_t end_nanos);
  // The rank was blocked for the call.
  void AddExposed(int64_t id, int64_t nanos);
  // As DescribeCall, of one of the entries at hand.
  std::string Describe(int64_t id) const;

  // --- for everybody -----------------------------------------------------------------------------
  // Totals since the ledger was made. Calls in flight count once they end: a step waits for its
  // own.
  CommTotals Mark() const;
  CommTotals Since(const CommTotals& mark) const { return Mark().Since(mark); }

  // The entries at hand, in order of their calls.
  std::vector<LedgerEntry> Recent() const;

  // From StartTrace to StopTrace all entries are kept; StopTrace returns those called in between.
  void StartTrace();
  std::vector<LedgerEntry> StopTrace();

  // What the rank called last and how that stands, for error messages: "all_reduce #11 of ..., in
  // flight for 3.2 s", "no call yet".
  std::string DescribeLast() const;

  // Totals and entries at hand, for a post-mortem: as a table, and as JSON (one object).
  std::string ToText() const;
  std::string ToJson() const;

 private:
  struct Kind {
    std::string label;
    CommTotal total;
  };

  LedgerEntry* Find(int64_t id);
  CommTotal& TotalOf(const LedgerEntry& entry);
  void Trim();

  const int rank_;
  const size_t recent_;
  mutable std::mutex mutex_;
  std::deque<LedgerEntry> entries_;  // ids first_id_, first_id_ + 1, ...
  int64_t first_id_ = 0;
  int64_t trace_from_ = -1;  // id from which all entries are kept; -1: no trace
  std::array<std::vector<Kind>, kOperations> kinds_;
  // Stretches with calls in flight, of which the present one began at in_flight_since_.
  int in_flight_ = 0;
  int64_t in_flight_since_ = 0;
  int64_t last_end_ = 0;  // of the calls that ended in it
  int64_t in_flight_nanos_ = 0;
};

}  // namespace lockstep
