#pragma once

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/comm/call_observer.h"
#include "core/comm/communicator.h"
#include "core/comm/held_memory.h"

namespace lockstep {

// A group that moves no floating-point numbers: such a call is over when it is made, outputs stay
// as they are, no other rank is waited for, and no ledger has it. Integers, which say how a run
// goes on (shapes, sizes, choices), travel as in the group that this one stands on. For rehearsals
// (core/run/rehearsal.h): all members are quiet together.
class QuietCommunicator final : public Communicator {
 public:
  struct Options {
    // What the backend that this one stands for holds beside the tensors of a call; null: nothing.
    // The books have it as long as the backend's would.
    HeldBytes held_bytes = nullptr;
    CallObserver* observer = nullptr;  // of this group and its sub-groups; null: nobody
  };

  // `host` and the observer outlive it and its sub-groups.
  explicit QuietCommunicator(Communicator& host) : QuietCommunicator(host, Options()) {}
  QuietCommunicator(Communicator& host, const Options& options);

  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key,
                                                      absl::string_view name) override;
  absl::StatusOr<std::unique_ptr<Communicator>> SplitBy(
      absl::FunctionRef<Choice(int rank)> choice_of, absl::string_view name) override;
  void Abort(const absl::Status& cause) override { host_.Abort(cause); }
  absl::Status status() const override { return host_.status(); }

 private:
  QuietCommunicator(std::unique_ptr<Communicator> host, const Options& options);

  // The quiet group that stands on `host`; none on none.
  absl::StatusOr<std::unique_ptr<Communicator>> OnTopOf(
      absl::StatusOr<std::unique_ptr<Communicator>> host) const;
  Work Start(Call call) override;
  void GiveUp(absl::string_view call) override { host_.GiveUp(call); }

  const std::unique_ptr<Communicator> owned_;  // where nobody else keeps it
  Communicator& host_;
  const Options options_;
  HeldMemory held_;
};

}  // namespace lockstep
