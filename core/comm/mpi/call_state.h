#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "core/comm/call.h"
#include "core/comm/group_info.h"
#include "core/comm/mpi/rank_state.h"
#include "core/comm/work.h"

namespace lockstep::mpi {

// One call of the rank: what Work holds. But for Wait, Done and Drop, with the rank's mutex held.
class CallState : public WorkState {
 public:
  // Enters the call into the ledger. `queue` is what drives it, and is kept; `held` is kept until
  // Wait.
  CallState(std::shared_ptr<RankState> rank, std::shared_ptr<const GroupInfo> group,
            std::shared_ptr<const InFlight> queue, Call call, int64_t sequence,
            std::shared_ptr<const Tensor> held = nullptr);

  absl::Status Wait() final;
  bool Done() final;
  void Drop() final;

  const Call& call() const { return call_; }
  int64_t sequence() const { return sequence_; }
  const std::shared_ptr<const Tensor>& held() const { return held_; }
  // "all_reduce #11 of 'dp' [0, 2] (...)"
  std::string Describe() const;

  bool over() const { return over_; }
  // The call is over; lets go of its tensors.
  void End(const absl::Status& status);
  // As End, because the rank's world has failed. Where something may still be in transit, the
  // tensors' memory is never given back.
  void EndFailed();

 protected:
  // Who did not come: "rank 1 did not come to ..., which rank 0 called".
  virtual std::string DescribeMissing() const = 0;

 private:
  const std::shared_ptr<RankState> rank_;
  const std::shared_ptr<const GroupInfo> group_;
  const std::shared_ptr<const InFlight> queue_;
  Call call_;
  const int64_t sequence_;
  const int64_t ledger_id_;
  std::shared_ptr<const Tensor> held_;
  bool over_ = false;
  absl::Status status_;
};

// The memory of a tensor that takes part; null if it has none to take part with.
std::byte* MemoryOf(const Tensor& tensor);

}  // namespace lockstep::mpi
