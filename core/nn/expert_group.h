#pragma once

#include <memory>
#include <string>

#include "core/autograd/experts.h"
#include "core/nn/pass.h"

namespace lockstep {

// The ranks that divide the experts of each layer among them, as one of them sees them: each has as
// many consecutive experts. Moves are differentiable, and called by all members in the same order.
// They throw StatusException when a peer fails.
class ExpertGroup {
 public:
  virtual ~ExpertGroup() = default;

  virtual int size() const = 0;
  virtual int index() const = 0;

  // What the experts here get.
  struct Received {
    Variable x;  // [rows->dispatched(), width]
    std::shared_ptr<const ReceivedRows> rows;
    SharedRanges sent;  // of this member's tokens
  };
  // From each member's dispatched tokens, sent [rows->dispatched(), width], to the members that
  // have the experts. `layer` makes the call.
  virtual Received ToExperts(Pass& pass, const std::string& layer, const Variable& sent,
                             const SharedRanges& rows) = 0;
  // What the experts made of these rows, made [received.rows->dispatched(), width], back to the
  // members of the tokens: [received.sent->dispatched(), width], zeros in rows that are not in use.
  virtual Variable ToTokens(Pass& pass, const Variable& made, const Received& received) = 0;
};

}  // namespace lockstep
