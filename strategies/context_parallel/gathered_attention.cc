#include "strategies/context_parallel/gathered_attention.h"

#include <utility>

#include "core/base/status.h"

namespace lockstep {

Tensor GatheredAttention::Gather(Kernels& kernels, const Tensor& qkv, const Attention& attention) {
  const int64_t queries = attention.heads * attention.head_width;
  const Shape own = qkv.shape().With(2, qkv.shape()[2] - queries);
  const Tensor here = kernels.Empty(own, qkv.dtype(), MemoryClass::kCommunication);
  kernels.CopyColumns(qkv, queries, own[2], here, 0);
  const Tensor all =
      kernels.Empty(own.With(0, size() * own[0]), qkv.dtype(), MemoryClass::kCommunication);
  ThrowIfError(ranks().AllGather(here, all, kKeysAndValues).Wait());
  return all;
}

Variable GatheredAttention::Attend(Pass& pass, const Variable& qkv, const Attention& attention) {
  Kernels& k = pass.kernels();
  const TokenOrder& tokens = pass.tokens;
  const AttentionPart part = {.leaves = tokens.leaves,
                              .queries = {tokens.first_leaf(), tokens.held_leaves()},
                              .keys = {0, tokens.leaves}};
  const int64_t sequences = qkv.shape()[0], time = qkv.shape()[1];
  const int64_t width = attention.heads * attention.head_width;
  const Tensor y = k.Empty({sequences, time, width}, qkv.value.dtype());
  const Tensor log_sum_exp = k.Empty({sequences, attention.heads, time});
  {
    const AttentionSums sums = {
        .largest = k.EmptyLike(log_sum_exp),
        .sums = k.EmptyLike(log_sum_exp),
        .outputs = k.Empty({sequences, time, width}, DType::kF32, MemoryClass::kWorkspace)};
    k.AttentionOfPart(attention, part, qkv.value, Gather(k, qkv.value, attention), sums);
    k.FinishAttention(attention, sums, y, log_sum_exp);
  }
  Variable out = pass.tape.Result(y, qkv.needs_gradient());
  pass.tape.Record(out, [this, &k, part, qkv, attention, y, log_sum_exp, width](const Tensor& dy) {
    const Tensor dqkv = k.EmptyLike(qkv.value);
    const Shape own = qkv.shape().With(2, qkv.shape()[2] - width);
    const Tensor dkeys =
        k.Empty(own.With(0, size() * own[0]), dqkv.dtype(), MemoryClass::kCommunication);
    k.AttentionOfPartBackward(attention, part, qkv.value, Gather(k, qkv.value, attention), y,
                              log_sum_exp, dy, dqkv, dkeys);
    const Tensor own_dkeys = k.Empty(own, dqkv.dtype(), MemoryClass::kCommunication);
    ThrowIfError(
        ranks().ReduceScatter(dkeys, own_dkeys, ReduceOp::kSum, kKeyAndValueGradients).Wait());
    k.CopyColumns(own_dkeys, 0, own[2], dqkv, width);
    qkv.gradient->Add(k, dqkv);
  });
  return out;
}

}  // namespace lockstep
