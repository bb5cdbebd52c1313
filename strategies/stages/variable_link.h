#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/autograd/variable.h"
#include "core/run/rank.h"
#include "strategies/stages/tensor_route.h"

namespace lockstep {

// A link between two stages: lists of variables go from the earlier stage to the later one, and the
// gradients of each list come back. Each direction keeps its order. Members throw StatusException.
class VariableLink {
 public:
  virtual ~VariableLink() = default;

  // On the rank of the earlier stage. What is sent is not written afterwards.
  virtual void Send(const BatchKind& kind, const Variables& variables) = 0;
  // Begins to receive the next list of gradients, so that it travels while the rank computes.
  virtual void ExpectGradients(const BatchKind& kind) = 0;
  // The next gradients, in the order of the variables; undefined where none is needed or none came.
  virtual std::vector<Tensor> TakeGradients(const BatchKind& kind) = 0;

  // On that of the later stage, likewise. Each list is taken as inputs of a tape of its own.
  virtual void Expect(const BatchKind& kind) = 0;
  virtual Variables Take(const BatchKind& kind) = 0;
  virtual void SendGradients(const BatchKind& kind, const std::vector<Tensor>& gradients) = 0;

  // Gives back what has been taken of what was sent; and waits until all has.
  virtual void ReleaseSent() = 0;
  virtual void AwaitSent() = 0;
};

// What the traffic of a link is called in the ledger.
struct LinkLabels {
  const char* variables;
  const char* gradients;
};

// From a rank of `ranks` to another; made by both. `from` and `to` are ranks there.
std::unique_ptr<VariableLink> LinkRanks(Communicator& ranks, int from, int to,
                                        const LinkLabels& labels, Kernels& kernels);
// Between two stages of one rank.
std::unique_ptr<VariableLink> LinkWithinRank();

}  // namespace lockstep
