#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/comm/communicator.h"

namespace lockstep {

// A group of which only some members run: each of them represents members that do the same work.
// For rehearsals of more ranks than a process can have threads.
//
// Calls move integers between the members that run. An absent member is taken to contribute what
// the caller contributes; messages to and from one move nothing. Floating-point tensors must not
// get here; a QuietCommunicator on top of this group keeps them back.
class FoldedCommunicator final : public Communicator {
 public:
  // The world of `size` ranks. The members that run are those of `host`: its member i has rank
  // present[i] here. `host` outlives this group and its sub-groups.
  static std::unique_ptr<FoldedCommunicator> World(Communicator& host, int size,
                                                   const std::vector<int>& present);

  // Returns Unimplemented: absent members cannot say what they choose. SplitBy works.
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key,
                                                      absl::string_view name) override;
  absl::StatusOr<std::unique_ptr<Communicator>> SplitBy(
      absl::FunctionRef<Choice(int rank)> choice_of, absl::string_view name) override;
  void Abort(const absl::Status& cause) override { host_->Abort(cause); }
  absl::Status status() const override { return host_->status(); }

 private:
  FoldedCommunicator(std::shared_ptr<const GroupInfo> group, std::unique_ptr<Communicator> owned,
                     Communicator* host, std::vector<int> present);

  Work Start(Call call) override;
  void GiveUp(absl::string_view call) override { host_->GiveUp(call); }
  int HostRankOf(int rank) const;  // -1: the member does not run

  const std::unique_ptr<Communicator> owned_;  // null in a world, whose host the caller owns
  Communicator* const host_;
  const std::vector<int> present_;  // by rank in the host, the rank here
};

}  // namespace lockstep
