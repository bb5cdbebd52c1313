#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/comm/collective_task.h"
#include "core/comm/signature.h"
#include "core/tensor/tensor.h"

namespace lockstep::mpi {

// Bytes that go to another member, or come from it.
struct PeerBuffer {
  int member;
  std::byte* at;
  int64_t bytes;
};

// Buffers that may travel at the same time. Between two members there is one each way at most.
struct Exchange {
  std::vector<PeerBuffer> sends{};
  std::vector<PeerBuffer> receives{};
};

// What one member of a group does in a collective whose data is too large to be announced with the
// call: a sequence of exchanges, with arithmetic and copies in between. All members have as many.
//
// Reductions are made of chunks: each member gets its chunk of everybody's input, reduces it in
// rank order, and hands it on (Rabenseifner's reduce-scatter and all-gather, with direct exchanges
// in place of halving, which would change the order of sums). A broadcast goes out in chunks that
// the members then pass around, so that the root sends the payload once.
//
// Chunks are cut into slices, whose exchanges follow each other: what must be held beside the
// tensors is bounded.
class Movement {
 public:
  // Returns the bytes that each of `size` members holds beside its tensors; 0 where nothing is
  // reduced or swapped in place, or nobody else is there.
  static int64_t HeldBytes(const Signature& signature, int size, bool in_place);

  // `own` is the member's memory. `held` has at least HeldBytes; null where these are 0.
  Movement(const Signature& signature, int size, int rank, const MemberBuffers& own,
           std::shared_ptr<const Tensor> held);

  // Does what the exchange before makes possible, and returns the next one; empty ones are passed
  // over. False when all is done.
  bool Next(Exchange* exchange);

 private:
  // Elements of `member`'s chunk in the present slice.
  Chunk SliceOf(int member) const;
  std::byte* Input(int64_t element) const;
  std::byte* Output(int64_t element) const;
  std::byte* Held(int member) const;  // memory for a slice that is due to `member` or comes from it

  void Start(Exchange* exchange);     // a slice's first exchange
  void Continue(Exchange* exchange);  // its second one, if it has any
  void CopyOwn();
  void ReduceOwn();

  const Signature signature_;
  const int size_, rank_;
  const MemberBuffers own_;
  const std::vector<Chunk> chunks_;  // by member
  const int64_t slice_elements_;     // the same on all members, as is the number of slices
  const int64_t slices_;
  int64_t slice_ = 0;
  enum class At { kStart, kContinue } at_ = At::kStart;
  const std::shared_ptr<const Tensor> held_;  // one slice a member
};

}  // namespace lockstep::mpi
