// A group whose calls with some labels do not do what they should.

#pragma once

#include <memory>
#include <set>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/comm/communicator.h"

namespace lockstep {

// A group that stands on another one and loses what calls with the labels `lost` should move: an
// all-reduce leaves each member with its own contribution, and a message arrives as zeros. All
// other calls go to the other group. Sub-groups lose the same.
class FaultyCommunicator final : public Communicator {
 public:
  // `host` outlives it and its sub-groups.
  FaultyCommunicator(Communicator& host, std::set<std::string> lost);

  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key,
                                                      absl::string_view name) override;
  absl::StatusOr<std::unique_ptr<Communicator>> SplitBy(
      absl::FunctionRef<Choice(int rank)> choice_of, absl::string_view name) override;
  absl::Status ConnectRoutes(absl::Span<const Route> routes) override {
    return host_.ConnectRoutes(routes);
  }
  void Abort(const absl::Status& cause) override { host_.Abort(cause); }
  absl::Status status() const override { return host_.status(); }

 private:
  FaultyCommunicator(std::unique_ptr<Communicator> host, std::set<std::string> lost);

  absl::StatusOr<std::unique_ptr<Communicator>> OnTopOf(
      absl::StatusOr<std::unique_ptr<Communicator>> host) const;
  Work Start(Call call) override;
  void GiveUp(absl::string_view call) override;

  const std::unique_ptr<Communicator> owned_;  // null: somebody else keeps the host
  Communicator& host_;
  const std::set<std::string> lost_;
};

}  // namespace lockstep
