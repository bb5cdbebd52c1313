// Attention over token leaves from the plain kernels, for backends that have no kernels of it.

#include "core/base/token_order.h"
#include "core/kernels/kernels.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// Copies between the order of leaves, [leaves, sequences, leaf time, ...], and the order of
// positions, [sequences, time, ...]. A sequence is a sample, or a head of a sample.
class TokenLeaves {
 public:
  TokenLeaves(Kernels& kernels, const TokenOrder& order) : kernels_(kernels), order_(order) {}

  Tensor ByPosition(const Tensor& x, int64_t sequences, const Shape& shape) const {
    const Tensor to = kernels_.Empty(shape, x.dtype(), MemoryClass::kWorkspace);
    Copy(x, to, sequences, /*to_positions=*/true);
    return to;
  }
  void ByLeaf(const Tensor& from, int64_t sequences, const Tensor& x) const {
    Copy(x, from, sequences, /*to_positions=*/false);
  }

 private:
  void Copy(const Tensor& by_leaf, const Tensor& by_position, int64_t sequences,
            bool to_positions) const {
    const int64_t leaf_elements = by_leaf.elements() / order_.leaves;
    const Tensor all = by_leaf.Reshape({1, by_leaf.elements()});
    const Tensor leaf_row =
        kernels_.Empty({1, leaf_elements}, by_leaf.dtype(), MemoryClass::kWorkspace);
    const Tensor leaf_rows = leaf_row.Reshape({sequences, leaf_elements / sequences});
    const Tensor rows = by_position.Reshape({sequences, by_position.elements() / sequences});
    const int64_t place = leaf_rows.shape()[1] / order_.leaf_time();  // elements of a place
    for (int64_t leaf = 0; leaf < order_.leaves; ++leaf) {
      const int64_t chunk = order_.chunk() * place;
      const int64_t firsts[] = {order_.FirstChunk(leaf) * place, order_.SecondChunk(leaf) * place};
      if (to_positions) kernels_.CopyColumns(all, leaf * leaf_elements, leaf_elements, leaf_row, 0);
      for (int half = 0; half < 2; ++half) {
        if (to_positions) {
          kernels_.CopyColumns(leaf_rows, half * chunk, chunk, rows, firsts[half]);
        } else {
          kernels_.CopyColumns(rows, firsts[half], chunk, leaf_rows, half * chunk);
        }
      }
      if (!to_positions)
        kernels_.CopyColumns(leaf_row, 0, leaf_elements, all, leaf * leaf_elements);
    }
  }

  Kernels& kernels_;
  TokenOrder order_;
};

TokenOrder OrderOf(const Tensor& x, int64_t leaves) {
  const TokenOrder order{
      .samples = x.shape()[0] / leaves, .time = x.shape()[1] * leaves, .leaves = leaves};
  CHECK(leaves > 1 && order.Fits() && x.shape()[0] % leaves == 0)
      << leaves << " leaves of " << x.shape();
  return order;
}

}  // namespace

void Kernels::AttentionForwardByTokenLeaves(const Attention& attention, int64_t leaves,
                                            const Tensor& qkv, const Tensor& y,
                                            const Tensor& log_sum_exp) {
  const TokenOrder order = OrderOf(qkv, leaves);
  const TokenLeaves tokens(*this, order);
  const Shape shape = {order.samples, order.time, y.shape()[2]};
  const int64_t sequences = order.samples * attention.heads;
  const Tensor result = Empty(shape, y.dtype(), MemoryClass::kWorkspace);
  const Tensor sums = Empty({order.samples, attention.heads, order.time}, log_sum_exp.dtype(),
                            MemoryClass::kWorkspace);
  AttentionForward(attention, tokens.ByPosition(qkv, order.samples, shape.With(2, qkv.shape()[2])),
                   result, sums);
  tokens.ByLeaf(result, order.samples, y);
  tokens.ByLeaf(sums, sequences, log_sum_exp);
}

void Kernels::AttentionBackwardByTokenLeaves(const Attention& attention, int64_t leaves,
                                             const Tensor& qkv, const Tensor& y,
                                             const Tensor& log_sum_exp, const Tensor& dy,
                                             const Tensor& dqkv) {
  const TokenOrder order = OrderOf(qkv, leaves);
  const TokenLeaves tokens(*this, order);
  const Shape shape = {order.samples, order.time, y.shape()[2]};
  const Tensor projections = tokens.ByPosition(qkv, order.samples, shape.With(2, qkv.shape()[2]));
  const Tensor gradient = Empty(projections.shape(), dqkv.dtype(), MemoryClass::kWorkspace);
  AttentionBackward(attention, projections, tokens.ByPosition(y, order.samples, shape),
                    tokens.ByPosition(log_sum_exp, order.samples * attention.heads,
                                      {order.samples, attention.heads, order.time}),
                    tokens.ByPosition(dy, order.samples, shape), gradient);
  tokens.ByLeaf(gradient, order.samples, dqkv);
}

}  // namespace lockstep
