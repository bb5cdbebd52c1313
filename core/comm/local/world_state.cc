#include "core/comm/local/world_state.h"

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>  // std::iota
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

RankEngine::Cores CoresFor(int ranks) {
  cpu_set_t cores;
  const bool known = sched_getaffinity(0, sizeof(cores), &cores) == 0;
  return known && ranks <= CPU_COUNT(&cores) ? RankEngine::Cores::kOwn : RankEngine::Cores::kShared;
}

}  // namespace

WorldState::WorldState(int size, std::chrono::nanoseconds timeout) : timeout_(timeout) {
  CHECK_GE(size, 1);
  std::vector<int> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  group_of_all_ = std::make_shared<LocalGroup>(std::move(all));
  for (int rank = 0; rank < size; ++rank) {
    ranks_.push_back(std::make_unique<Rank>(
        CoresFor(size), [this, rank](const absl::Status& cause) { FailRank(rank, cause); }));
  }
}

WorldState::~WorldState() {
  // A worker may be about to notify another rank: all of them end before any rank goes.
  for (const auto& rank : ranks_) rank->engine.Stop();
}

void WorldState::Join(int rank, Ledger& ledger) {
  std::lock_guard lock(mutex_);
  Rank& self = *ranks_[static_cast<size_t>(rank)];
  CHECK(self.ledger == nullptr && !self.left) << "rank " << rank << " joins a second time";
  self.ledger = &ledger;
}

void WorldState::Leave(int rank) {
  {
    std::lock_guard lock(mutex_);
    Rank& self = *ranks_[static_cast<size_t>(rank)];
    if (self.left) return;
    self.last_call = absl::StrCat("has left; last: ",
                                  self.ledger == nullptr ? "nothing" : self.ledger->DescribeLast());
    self.ledger = nullptr;
    self.left = true;
  }
  somebody_left_ = true;
  for (const auto& other : ranks_) other->engine.Notify();
}

absl::Status WorldState::status() const {
  std::lock_guard lock(mutex_);
  if (cause_.ok()) return cause_;
  return absl::Status(cause_.code(), absl::StrCat(cause_.message(), last_calls_));
}

std::optional<int> WorldState::failed_rank() const {
  std::lock_guard lock(mutex_);
  return failed_rank_ < 0 ? std::nullopt : std::optional<int>(failed_rank_);
}

void WorldState::FailRank(int rank, const absl::Status& cause) {
  CHECK(!cause.ok());
  Fail(rank, Kind::kFinal,
       absl::Status(cause.code(), absl::StrCat("rank ", rank, " failed: ", cause.message())));
}

void WorldState::FailDropped(int rank, absl::string_view call) {
  Fail(rank, Kind::kDropped,
       absl::AbortedError(absl::StrCat(
           "rank ", rank, " gave up ", call,
           " without waiting for it, as a step does that ends with an error or an exception")));
}

void WorldState::FailCall(const absl::Status& cause) { Fail(-1, Kind::kFinal, cause); }

void WorldState::Fail(int rank, Kind kind, const absl::Status& cause) {
  {
    std::lock_guard lock(mutex_);
    if (failed_) {
      // Only a rank that went away without a word may still say why.
      if (failed_kind_ == Kind::kDropped && kind == Kind::kFinal && rank == failed_rank_) {
        cause_ = cause;
        failed_kind_ = kind;
      }
      return;
    }
    cause_ = cause;
    failed_rank_ = rank;
    failed_kind_ = kind;
    last_calls_ = LastCalls();
    failed_ = true;
  }
  for (const auto& other : ranks_) other->engine.Notify();
}

std::string WorldState::LastCalls() const {
  std::string text = ". Last calls:";
  for (int rank = 0; rank < size(); ++rank) {
    const Rank& self = *ranks_[static_cast<size_t>(rank)];
    absl::StrAppend(&text, rank == 0 ? " rank " : "; rank ", rank, ": ",
                    self.ledger == nullptr ? self.last_call : self.ledger->DescribeLast());
  }
  return text;
}

absl::StatusOr<std::shared_ptr<LocalGroup>> WorldState::MakeGroup(const LocalGroup& parent,
                                                                  int64_t sequence, int color,
                                                                  std::vector<int> members,
                                                                  int rank,
                                                                  absl::string_view name) {
  std::unique_lock lock(mutex_);
  const auto key = std::make_tuple(&parent, sequence, color);
  NewGroup& made = new_groups_[key];
  if (made.group == nullptr) {
    made.group = std::make_shared<LocalGroup>(std::move(members));
    made.name = std::string(name);
    made.first = rank;
  } else if (made.name != name) {
    const absl::Status error = absl::FailedPreconditionError(absl::StrCat(
        "split #", sequence, ", color ", color, ": rank ", made.first, " names the new group '",
        made.name, "', rank ", rank, " names it '", name, "'; its members must give it one name"));
    lock.unlock();
    FailCall(error);
    return error;
  }
  std::shared_ptr<LocalGroup> group = made.group;
  if (++made.asked == group->members().size()) new_groups_.erase(key);
  return group;
}

}  // namespace lockstep
