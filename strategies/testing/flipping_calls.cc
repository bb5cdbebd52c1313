#include "strategies/testing/flipping_calls.h"

#include <cstddef>
#include <utility>

namespace lockstep {

void CallFlips::Arm(int rank, Which which, int64_t tensor, uint64_t bit) {
  ranks_[static_cast<size_t>(rank)] = {.which = which, .tensor = tensor, .bit = bit};
}

int64_t CallFlips::Disarm(int rank) {
  return std::exchange(ranks_[static_cast<size_t>(rank)], Entry()).seen;
}

void CallFlips::Pass(int rank, Which which, const Tensor& tensor) {
  Entry& entry = ranks_[static_cast<size_t>(rank)];
  if (entry.which != which) return;
  if (entry.seen++ == entry.tensor) FlipBit(tensor, entry.bit);
}

void FlipBit(const Tensor& tensor, uint64_t bit) {
  if (tensor.bytes() == 0) return;
  bit %= static_cast<uint64_t>(tensor.bytes()) * 8;
  tensor.raw()[bit / 8] ^= std::byte{1} << (bit % 8);
}

}  // namespace lockstep
