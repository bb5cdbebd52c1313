#include "strategies/context_parallel/ulysses_attention.h"

#include <vector>

#include "core/autograd/operations.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

// Calls copy(first, count, from) for the columns of queries, of keys and of values that rank `rank`
// of `ranks` has: `count` columns from column `first` of all heads on, which are its own from
// column `from` on.
template <typename Copy>
void ForColumns(int64_t queries, int64_t keys, int ranks, int rank, Copy&& copy) {
  int64_t first = 0, from = 0;
  for (const int64_t width : {queries, keys, keys}) {
    const int64_t own = width / ranks;
    if (own > 0) copy(first + rank * own, own, from);
    first += width;
    from += own;
  }
}

}  // namespace

Tensor UlyssesAttention::ToHeads(Kernels& kernels, const Tensor& x, const Columns& columns,
                                 const char* label) {
  const Shape own = x.shape().With(2, x.shape()[2] / size());
  const Shape all = own.With(0, size() * own[0]);
  const int64_t chunk = own.elements();
  const Tensor sent = kernels.Empty({1, size() * chunk}, x.dtype(), MemoryClass::kCommunication);
  const Tensor part = kernels.Empty(own, x.dtype(), MemoryClass::kCommunication);
  for (int rank = 0; rank < size(); ++rank) {
    ForColumns(columns.queries, columns.keys, size(), rank,
               [&](int64_t first, int64_t count, int64_t from) {
                 kernels.CopyColumns(x, first, count, part, from);
               });
    kernels.CopyColumns(part.Reshape({1, chunk}), 0, chunk, sent, rank * chunk);
  }
  const Tensor received = kernels.Empty(all, x.dtype());
  ThrowIfError(ranks().AllToAll(sent.Reshape(all), received, label).Wait());
  return received;
}

Tensor UlyssesAttention::ToTokens(Kernels& kernels, const Tensor& x, const Columns& columns,
                                  const char* label) {
  const Shape own = x.shape().With(0, x.shape()[0] / size());
  const int64_t chunk = own.elements();
  const Tensor received = kernels.Empty(x.shape(), x.dtype(), MemoryClass::kCommunication);
  ThrowIfError(ranks().AllToAll(x, received, label).Wait());
  const Tensor rows = received.Reshape({1, size() * chunk});
  const Tensor part = kernels.Empty(own, x.dtype(), MemoryClass::kCommunication);
  const Tensor result = kernels.Empty(own.With(2, size() * own[2]), x.dtype());
  for (int rank = 0; rank < size(); ++rank) {
    kernels.CopyColumns(rows, rank * chunk, chunk, part.Reshape({1, chunk}), 0);
    ForColumns(columns.queries, columns.keys, size(), rank,
               [&](int64_t first, int64_t count, int64_t from) {
                 kernels.CopyColumns(part, from, count, result, first);
               });
  }
  return result;
}

Variable UlyssesAttention::ToHeads(Pass& pass, const Variable& x, const Columns& columns) {
  Kernels& k = pass.kernels();
  Variable out = pass.tape.Result(ToHeads(k, x.value, columns, kHeads), x.needs_gradient());
  pass.tape.Record(out, [this, &k, columns, x = x.gradient](const Tensor& dy) {
    x->Add(k, ToTokens(k, dy, columns, kHeadGradients));
  });
  return out;
}

Variable UlyssesAttention::ToTokens(Pass& pass, const Variable& x, const Columns& columns) {
  Kernels& k = pass.kernels();
  Variable out = pass.tape.Result(ToTokens(k, x.value, columns, kHeads), x.needs_gradient());
  pass.tape.Record(out, [this, &k, columns, x = x.gradient](const Tensor& dy) {
    x->Add(k, ToHeads(k, dy, columns, kHeadGradients));
  });
  return out;
}

Variable UlyssesAttention::Attend(Pass& pass, const Variable& qkv, const Attention& attention) {
  const int64_t queries = attention.heads * attention.head_width;
  Attention own = attention;
  own.heads = attention.heads / size();
  own.key_heads = attention.key_heads / size();
  own.first_head = attention.first_head + index() * own.heads;
  const Variable heads =
      ToHeads(pass, qkv, {.queries = queries, .keys = (qkv.shape()[2] - queries) / 2});
  return ToTokens(pass, SelfAttention(pass.tape, heads, own, pass.tokens.leaves),
                  {.queries = queries});
}

}  // namespace lockstep
