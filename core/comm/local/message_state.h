#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "core/comm/call.h"
#include "core/comm/group_info.h"
#include "core/comm/ledger.h"
#include "core/comm/local/group.h"
#include "core/comm/local/transfer.h"
#include "core/comm/local/world_state.h"
#include "core/comm/work.h"

namespace lockstep {

// One side of a message: what the Work of a send or recv holds.
class MessageState final : public WorkState {
 public:
  // Posts the message. `sequence` counts the messages of this pair and direction.
  MessageState(std::shared_ptr<WorldState> world, LocalGroup& group,
               std::shared_ptr<const GroupInfo> info, Ledger& ledger, Call call, int64_t sequence);

  absl::Status Wait() override;
  bool Done() override;
  void Drop() override;

 private:
  // Takes the message along as far as it goes without waiting, and says whether it is over.
  absl::Status WaitThrowing();
  bool Carry();
  void End(const absl::Status& status, int64_t end_nanos);
  void FailForDisagreement();
  void FailForTimeout();
  int peer() const { return info_->members[static_cast<size_t>(call_.signature.root)]; }
  std::string Describe() const;

  const std::shared_ptr<WorldState> world_;
  const std::shared_ptr<const GroupInfo> info_;
  Ledger& ledger_;
  Call call_;
  const int64_t sequence_;
  const int64_t ledger_id_;
  std::shared_ptr<Transfer> transfer_;  // null if the world had failed before
  bool over_ = false;
  absl::Status status_;
};

}  // namespace lockstep
