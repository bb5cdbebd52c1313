#include "core/nn/context.h"

#include "core/autograd/operations.h"

namespace lockstep {

Variable Attend(Pass& pass, const Variable& qkv, const Attention& attention) {
  if (pass.context != nullptr) return pass.context->Attend(pass, qkv, attention);
  return SelfAttention(pass.tape, qkv, attention, pass.tokens.leaves);
}

}  // namespace lockstep
