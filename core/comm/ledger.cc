#include "core/comm/ledger.h"

#include <algorithm>
#include <cstdint>
#include <iterator>  // std::ssize
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "glog/logging.h"

namespace lockstep {

namespace {

std::string InBrackets(const Signature& signature, absl::string_view label) {
  const std::string arguments = DescribeArguments(signature);
  return absl::StrCat(
      "(", arguments, arguments.empty() ? "" : ", ", "\"", label, "\")",
      signature.memory == DeviceType::kCpu ? "" : absl::StrCat(" on ", Name(signature.memory)));
}

}  // namespace

std::string DescribeCall(const Signature& signature, absl::string_view label) {
  return absl::StrCat(Name(signature.operation), " ", InBrackets(signature, label));
}

std::string DescribeCall(const Signature& signature, absl::string_view label,
                         const GroupInfo& group, int64_t sequence) {
  return absl::StrCat(Name(signature.operation), " #", sequence, " of ", group.ToString(), " ",
                      InBrackets(signature, label));
}

std::string LedgerEntry::ToString() const {
  return DescribeCall(signature, label, *group, sequence);
}

int64_t Ledger::Begin(std::shared_ptr<const GroupInfo> group, int64_t sequence,
                      const Signature& signature, absl::string_view label) {
  const double wire_bytes = WireBytes(signature, group->size(), group->rank);
  std::lock_guard lock(mutex_);
  // Whole before others can see it, also where there is no memory for its label.
  LedgerEntry entry;
  entry.label.assign(label.data(), label.size());
  entry.sequence = sequence;
  entry.signature = signature;
  entry.group = std::move(group);
  entry.bytes = PayloadBytes(signature);
  entry.wire_bytes = wire_bytes;
  entry.start_nanos = NowNanos();
  entries_.push_back(std::move(entry));
  const int64_t start_nanos = entries_.back().start_nanos;
  if (in_flight_++ == 0) in_flight_since_ = last_end_ = start_nanos;
  return first_id_ + static_cast<int64_t>(entries_.size()) - 1;
}

void Ledger::Finish(int64_t id, LedgerEntry::State state, int64_t end_nanos) {
  std::lock_guard lock(mutex_);
  LedgerEntry* entry = Find(id);
  CHECK(entry != nullptr && entry->state == LedgerEntry::State::kInFlight);
  // First what may want memory: whoever has none may try again.
  CommTotal* const total = state == LedgerEntry::State::kDone ? &TotalOf(*entry) : nullptr;
  entry->state = state;
  entry->end_nanos = end_nanos;
  last_end_ = std::max(last_end_, end_nanos);
  if (--in_flight_ == 0) in_flight_nanos_ += last_end_ - in_flight_since_;
  if (total != nullptr) {
    *total += {.calls = 1,
               .bytes = entry->bytes,
               .wire_bytes = entry->wire_bytes,
               .busy_nanos = end_nanos - entry->start_nanos};
  }
  Trim();
}

void Ledger::AddExposed(int64_t id, int64_t nanos) {
  std::lock_guard lock(mutex_);
  LedgerEntry* entry = Find(id);
  if (entry == nullptr) return;  // finished long ago: the wait cost nothing
  entry->exposed_nanos += nanos;
  if (entry->state == LedgerEntry::State::kDone) TotalOf(*entry).exposed_nanos += nanos;
}

std::string Ledger::Describe(int64_t id) const {
  std::lock_guard lock(mutex_);
  if (id < first_id_) return "a call that was over long ago";
  CHECK_LT(id - first_id_, std::ssize(entries_));
  return entries_[static_cast<size_t>(id - first_id_)].ToString();
}

CommTotals Ledger::Mark() const {
  std::lock_guard lock(mutex_);
  CommTotals totals;
  totals.in_flight_nanos = in_flight_nanos_;
  for (int operation = 0; operation < kOperations; ++operation) {
    for (const Kind& kind : kinds_[operation]) {
      totals.by_kind[{static_cast<Operation>(operation), kind.label}] = kind.total;
    }
  }
  return totals;
}

std::vector<LedgerEntry> Ledger::Recent() const {
  std::lock_guard lock(mutex_);
  return {entries_.begin(), entries_.end()};
}

void Ledger::StartTrace() {
  std::lock_guard lock(mutex_);
  trace_from_ = first_id_ + static_cast<int64_t>(entries_.size());
}

std::vector<LedgerEntry> Ledger::StopTrace() {
  std::lock_guard lock(mutex_);
  if (trace_from_ < 0) return {};
  std::vector<LedgerEntry> window(entries_.begin() + (trace_from_ - first_id_), entries_.end());
  trace_from_ = -1;
  Trim();
  return window;
}

std::string Ledger::DescribeLast() const {
  std::lock_guard lock(mutex_);
  if (entries_.empty()) return "no call yet";
  const LedgerEntry& last = entries_.back();
  switch (last.state) {
    case LedgerEntry::State::kInFlight:
      return absl::StrCat(last.ToString(), ", in flight for ",
                          FormatDuration(SecondsSince(last.start_nanos)));
    case LedgerEntry::State::kDone:
      return absl::StrCat(last.ToString(), ", done ", FormatDuration(SecondsSince(last.end_nanos)),
                          " ago");
    case LedgerEntry::State::kFailed:
      return absl::StrCat(last.ToString(), ", failed ",
                          FormatDuration(SecondsSince(last.end_nanos)), " ago");
  }
  return "";
}

LedgerEntry* Ledger::Find(int64_t id) {
  return id < first_id_ ? nullptr : &entries_[static_cast<size_t>(id - first_id_)];
}

CommTotal& Ledger::TotalOf(const LedgerEntry& entry) {
  std::vector<Kind>& kinds = kinds_[static_cast<size_t>(entry.signature.operation)];
  for (Kind& kind : kinds) {
    if (kind.label == entry.label) return kind.total;
  }
  return kinds.emplace_back(Kind{.label = entry.label, .total = {}}).total;
}

void Ledger::Trim() {
  while (entries_.size() > recent_ && first_id_ != trace_from_ &&
         entries_.front().state != LedgerEntry::State::kInFlight) {
    entries_.pop_front();
    ++first_id_;
  }
}

}  // namespace lockstep
