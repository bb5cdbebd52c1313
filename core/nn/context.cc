#include "core/nn/context.h"

#include "core/autograd/operations.h"
#include "core/nn/key_value_cache.h"

namespace lockstep {

Variable Attend(Pass& pass, const Variable& qkv, Attention attention) {
  if (pass.documents.defined()) {
    attention.documents = {pass.documents.data<int32_t>(), pass.documents.shape()[1]};
  }
  if (pass.context != nullptr) return pass.context->Attend(pass, qkv, attention);
  if (pass.cache != nullptr) return pass.cache->Attend(pass, qkv, attention);
  return SelfAttention(pass.tape, qkv, attention, pass.tokens.leaves);
}

}  // namespace lockstep
