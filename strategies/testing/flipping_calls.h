#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor/tensor.h"
#include "strategies/testing/watched_calls.h"

namespace lockstep {

// Bits that flip in the tensors of a rank's communicator calls. Each rank has an entry, which its
// own thread alone touches: WithFlip's strategy arms it for a step, and the communicators of
// WithWatchedCalls count the tensors that pass by and flip a bit of one.
class CallFlips final : public CallWatcher {
 public:
  enum class Which {
    kNone,
    kSent,      // what the rank gives to a call
    kReceived,  // what a call has brought from other ranks
  };

  explicit CallFlips(int ranks) : ranks_(static_cast<size_t>(ranks)) {}

  // From now on counts the tensors of this kind from 0, and flips bit `bit` of number `tensor`;
  // none where `tensor` is below 0.
  void Arm(int rank, Which which, int64_t tensor, uint64_t bit);
  // Ends that. Returns how many tensors there were.
  int64_t Disarm(int rank);

  void Sends(int rank, const Tensor& tensor) override { Pass(rank, Which::kSent, tensor); }
  void Received(int rank, const Tensor& tensor) override { Pass(rank, Which::kReceived, tensor); }

 private:
  struct Entry {
    Which which = Which::kNone;
    int64_t tensor = -1;
    uint64_t bit = 0;
    int64_t seen = 0;
  };

  void Pass(int rank, Which which, const Tensor& tensor);

  std::vector<Entry> ranks_;
};

// Flips a bit of a tensor in this machine's memory; which, modulo their number.
void FlipBit(const Tensor& tensor, uint64_t bit);

}  // namespace lockstep
