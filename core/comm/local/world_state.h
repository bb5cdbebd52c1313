#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/comm/ledger.h"
#include "core/comm/local/group.h"
#include "core/comm/local/rank_engine.h"

namespace lockstep {

// What the ranks of a local world share: who is there, whether the world has failed and why, and
// the groups. The rank -1 stands for a failure of nobody in particular.
class WorldState {
 public:
  WorldState(int size, std::chrono::nanoseconds timeout);
  ~WorldState();

  int size() const { return static_cast<int>(ranks_.size()); }
  std::chrono::nanoseconds timeout() const { return timeout_; }
  RankEngine& engine(int rank) { return ranks_[static_cast<size_t>(rank)]->engine; }
  const std::shared_ptr<LocalGroup>& group_of_all() const { return group_of_all_; }

  // A rank comes, once, with its ledger; and goes, for good. Waits for it end then.
  void Join(int rank, Ledger& ledger);
  void Leave(int rank);
  bool somebody_left() const { return somebody_left_.load(); }
  bool HasLeft(int rank) const { return ranks_[static_cast<size_t>(rank)]->left.load(); }

  // --- failure: the first one stands ------------------------------------------------------------
  bool failed() const { return failed_.load(); }
  // OK, or the first cause with the last call of every rank.
  absl::Status status() const;
  // The rank that failed first; none if nothing has failed, or nobody in particular has.
  std::optional<int> failed_rank() const;

  // `rank` has failed because of `cause`.
  void FailRank(int rank, const absl::Status& cause);
  // `rank` goes away amid a call; why, FailRank may say later.
  void FailDropped(int rank, absl::string_view call);
  // The members of a group could not complete a call.
  void FailCall(const absl::Status& cause);

  // The group of `members` that a split of `parent` makes for one color; the same object for all of
  // them, each of whom asks once. An error, and a failure, if they call it by different names.
  absl::StatusOr<std::shared_ptr<LocalGroup>> MakeGroup(const LocalGroup& parent, int64_t sequence,
                                                        int color, std::vector<int> members,
                                                        int rank, absl::string_view name);

 private:
  struct Rank {
    Rank(RankEngine::Cores cores, RankEngine::Failed failed) : engine(cores, std::move(failed)) {}
    std::atomic<bool> left = false;
    Ledger* ledger = nullptr;  // while it is there
    std::string last_call = "has not come yet";
    RankEngine engine;
  };
  struct NewGroup {
    std::shared_ptr<LocalGroup> group;
    std::string name;
    int first = 0;  // the rank that asked first
    size_t asked = 0;
  };
  enum class Kind { kFinal, kDropped };

  void Fail(int rank, Kind kind, const absl::Status& cause);
  std::string LastCalls() const;

  const std::chrono::nanoseconds timeout_;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> somebody_left_ = false;
  std::shared_ptr<LocalGroup> group_of_all_;

  mutable std::mutex mutex_;  // guards what follows, and Rank's ledger and last_call
  absl::Status cause_;
  std::string last_calls_;
  int failed_rank_ = -1;
  Kind failed_kind_ = Kind::kFinal;
  std::map<std::tuple<const LocalGroup*, int64_t, int>, NewGroup> new_groups_;

  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace lockstep
