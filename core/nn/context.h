#pragma once

#include <cstdint>
#include <vector>

#include "core/autograd/variable.h"
#include "core/kernels/options.h"
#include "core/nn/parameter.h"
#include "core/nn/pass.h"

namespace lockstep {

// The ranks that divide the tokens of each sequence (context parallelism), as one of them sees it:
// what layers need to know of others, and no more. Each member has a run of consecutive token
// leaves (core/base/token_order.h), and all layers compute with its rows alone, but for attention.
class ContextGroup : public GradientGroup {
 public:
  virtual int index() const = 0;

  // Causal self-attention of the own queries over the keys of all members: qkv [own leaves *
  // samples, leaf time, packed width], the own projections, to [own leaves * samples, leaf time,
  // heads * head_width]. Differentiable. Called by all members in the same order. Throws
  // StatusException when a peer fails.
  virtual Variable Attend(Pass& pass, const Variable& qkv, const Attention& attention) = 0;

  // The numbers of all members, one member's behind those of the one before. Called by all members
  // in the same order, with as many. Throws StatusException when a peer fails.
  virtual std::vector<int64_t> GatherNumbers(const std::vector<int64_t>& numbers) = 0;
};

// Causal self-attention over the packed projections qkv of all tokens that this rank has, and over
// the keys of the ranks that have the others, within the documents of the pass.
Variable Attend(Pass& pass, const Variable& qkv, Attention attention);

}  // namespace lockstep
