#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/comm/communicator.h"
#include "core/comm/held_memory.h"

namespace lockstep {

// A group that moves no floating-point numbers: such a call is over when it is made, outputs stay
// as they are, no other rank is waited for, and no ledger has it. Integers, which say how a run
// goes on (shapes, sizes, choices), travel as in the group that this one stands on. For rehearsals
// (core/run/rehearsal.h): all members are quiet together.
class QuietCommunicator final : public Communicator {
 public:
  // `host` outlives it and its sub-groups. `held_bytes` is what the backend that this one stands
  // for holds beside the tensors of a call; null: nothing. The books have it as long as the
  // backend's would.
  explicit QuietCommunicator(Communicator& host, HeldBytes held_bytes = nullptr);

  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key,
                                                      absl::string_view name) override;
  void Abort(const absl::Status& cause) override { host_.Abort(cause); }
  absl::Status status() const override { return host_.status(); }

 private:
  QuietCommunicator(std::unique_ptr<Communicator> host, HeldBytes held_bytes);

  Work Start(Call call) override;
  void GiveUp(absl::string_view call) override { host_.GiveUp(call); }

  const std::unique_ptr<Communicator> owned_;  // where nobody else keeps it
  Communicator& host_;
  const HeldBytes held_bytes_;
  HeldMemory held_;
};

}  // namespace lockstep
