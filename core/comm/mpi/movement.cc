#include "core/comm/mpi/movement.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "core/comm/reduce.h"
#include "glog/logging.h"

namespace lockstep::mpi {
namespace {

// What may be held beside the tensors, over all members; and the largest slice where nothing is
// held.
constexpr int64_t kHeldBytes = 8 << 20;
constexpr int64_t kSliceBytes = 64 << 20;
constexpr int64_t kLine = 64;

// The payload cut evenly, on cache lines, where the operation has no chunks.
std::vector<Chunk> EvenChunks(const Signature& signature, int size) {
  const int64_t line = kLine / SizeOf(signature.dtype);
  const int64_t lines = (signature.count + line - 1) / line;
  std::vector<Chunk> chunks;
  for (int member = 0; member < size; ++member) {
    const auto boundary = [&](int64_t m) {
      return std::min(signature.count, lines * m / size * line);
    };
    chunks.push_back({.begin = boundary(member), .count = boundary(member + 1) - boundary(member)});
  }
  return chunks;
}

std::vector<Chunk> ChunksOf(const Signature& signature, int size) {
  switch (signature.operation) {
    case Operation::kAllReduce:
    case Operation::kReduce:
    case Operation::kBroadcast:
      return EvenChunks(signature, size);
    default:
      break;
  }
  std::vector<Chunk> chunks;
  for (int member = 0; member < size; ++member) chunks.push_back(ChunkOf(signature, size, member));
  return chunks;
}

int64_t Longest(const std::vector<Chunk>& chunks) {
  int64_t longest = 0;
  for (const Chunk& chunk : chunks) longest = std::max(longest, chunk.count);
  return longest;
}

// The most elements of a slice: all of the longest chunk where that fits.
int64_t SliceElements(const Signature& signature, int size, int64_t longest) {
  const int64_t line = kLine / SizeOf(signature.dtype);
  // Some members may hold slices, even where others need not.
  const bool may_hold = Reduces(signature.operation) || signature.operation == Operation::kAllToAll;
  const int64_t most = may_hold ? std::max(line, kHeldBytes / size / kLine * line)
                                : kSliceBytes / SizeOf(signature.dtype);
  return std::min(most, (longest + line - 1) / line * line);
}

bool InPlace(const MemberBuffers& own) { return own.input == own.output; }

}  // namespace

int64_t Movement::HeldBytes(const Signature& signature, int size, bool in_place) {
  const bool swaps = signature.operation == Operation::kAllToAll && in_place;
  if (size == 1 || !(Reduces(signature.operation) || swaps)) return 0;
  return size * SliceElements(signature, size, Longest(ChunksOf(signature, size))) *
         SizeOf(signature.dtype);
}

Movement::Movement(const Signature& signature, int size, int rank, const MemberBuffers& own,
                   std::shared_ptr<const Tensor> held)
    : signature_(signature),
      size_(size),
      rank_(rank),
      own_(own),
      chunks_(ChunksOf(signature, size)),
      slice_elements_(SliceElements(signature, size, Longest(chunks_))),
      slices_(slice_elements_ == 0 ? 0
                                   : (Longest(chunks_) + slice_elements_ - 1) / slice_elements_),
      held_(std::move(held)) {
  const int64_t bytes = HeldBytes(signature, size, InPlace(own));
  CHECK(bytes == 0 || (held_ != nullptr && held_->bytes() >= bytes)) << Name(signature.operation);
}

bool Movement::Next(Exchange* exchange) {
  for (;;) {
    exchange->sends.clear();
    exchange->receives.clear();
    if (slice_ == slices_) return false;
    if (at_ == At::kStart) {
      Start(exchange);
      at_ = At::kContinue;
    } else {
      Continue(exchange);
      at_ = At::kStart;
      ++slice_;
    }
    if (!exchange->sends.empty() || !exchange->receives.empty()) return true;
  }
}

Chunk Movement::SliceOf(int member) const {
  const Chunk& chunk = chunks_[static_cast<size_t>(member)];
  const int64_t begin = std::min(slice_ * slice_elements_, chunk.count);
  return {.begin = chunk.begin + begin, .count = std::min(slice_elements_, chunk.count - begin)};
}

std::byte* Movement::Input(int64_t element) const {
  // MPI's sends and ours take what they only read through the same type as what they write.
  return const_cast<std::byte*>(own_.input) + element * SizeOf(signature_.dtype);
}

std::byte* Movement::Output(int64_t element) const {
  return own_.output + element * SizeOf(signature_.dtype);
}

std::byte* Movement::Held(int member) const {
  return held_->raw() + member * slice_elements_ * SizeOf(signature_.dtype);
}

// Elements of the tensors count from the whole payload's first one, but where a tensor is one chunk
// alone: there from that chunk's first one.
void Movement::Start(Exchange* exchange) {
  const Chunk own = SliceOf(rank_);
  const int64_t own_offset = own.begin - chunks_[static_cast<size_t>(rank_)].begin;
  const int root = signature_.root;
  const int64_t element = SizeOf(signature_.dtype);
  const auto send = [&](int member, std::byte* at, int64_t count) {
    if (count > 0) exchange->sends.push_back({member, at, count * element});
  };
  const auto receive = [&](int member, std::byte* at, int64_t count) {
    if (count > 0) exchange->receives.push_back({member, at, count * element});
  };
  for (int member = 0; member < size_; ++member) {
    if (member == rank_) continue;
    const Chunk theirs = SliceOf(member);
    switch (signature_.operation) {
      case Operation::kAllReduce:
      case Operation::kReduce:
      case Operation::kReduceScatter:
        send(member, Input(theirs.begin), theirs.count);
        receive(member, Held(member), own.count);
        break;
      case Operation::kAllGather:
        send(member, Input(own_offset), own.count);
        receive(member, Output(theirs.begin), theirs.count);
        break;
      case Operation::kGather:
        if (member == root) send(member, Input(own_offset), own.count);
        if (rank_ == root) receive(member, Output(theirs.begin), theirs.count);
        break;
      case Operation::kScatter:
        if (rank_ == root) send(member, Input(theirs.begin), theirs.count);
        if (member == root) receive(member, Output(own_offset), own.count);
        break;
      case Operation::kBroadcast:
        if (rank_ == root) send(member, Input(theirs.begin), theirs.count);
        if (member == root) receive(member, Output(own.begin), own.count);
        break;
      case Operation::kAllToAll:
        if (InPlace(own_) && theirs.count > 0) {
          std::memcpy(Held(member), Input(theirs.begin),
                      static_cast<size_t>(theirs.count * element));
        }
        send(member, InPlace(own_) ? Held(member) : Input(theirs.begin), theirs.count);
        receive(member, Output(theirs.begin), theirs.count);
        break;
      case Operation::kSend:
      case Operation::kRecv:
      case Operation::kBarrier:
      case Operation::kSplit:
        LOG(FATAL) << Name(signature_.operation) << " moves no chunks";
    }
  }
  CopyOwn();
}

void Movement::Continue(Exchange* exchange) {
  if (Reduces(signature_.operation)) ReduceOwn();
  const Chunk own = SliceOf(rank_);
  const int root = signature_.root;
  const int64_t element = SizeOf(signature_.dtype);
  for (int member = 0; member < size_; ++member) {
    if (member == rank_) continue;
    const Chunk theirs = SliceOf(member);
    std::byte* to_send = nullptr;
    bool receives = false;
    if (signature_.operation == Operation::kAllReduce) {
      to_send = Output(own.begin);
      receives = true;
    } else if (signature_.operation == Operation::kReduce) {
      to_send = member == root ? Held(rank_) : nullptr;
      receives = rank_ == root;
    } else if (signature_.operation == Operation::kBroadcast) {
      to_send = member == root ? nullptr : Output(own.begin);
      receives = rank_ != root;
    }
    if (to_send != nullptr && own.count > 0) {
      exchange->sends.push_back({member, to_send, own.count * element});
    }
    if (receives && theirs.count > 0) {
      exchange->receives.push_back({member, Output(theirs.begin), theirs.count * element});
    }
  }
}

void Movement::CopyOwn() {
  const Chunk own = SliceOf(rank_);
  const int64_t offset = own.begin - chunks_[static_cast<size_t>(rank_)].begin;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  switch (signature_.operation) {
    case Operation::kAllGather:
      from = Input(offset), to = Output(own.begin);
      break;
    case Operation::kGather:
      if (rank_ == signature_.root) from = Input(offset), to = Output(own.begin);
      break;
    case Operation::kScatter:
      if (rank_ == signature_.root) from = Input(own.begin), to = Output(offset);
      break;
    case Operation::kAllToAll:
      from = Input(own.begin), to = Output(own.begin);
      break;
    default:
      break;
  }
  if (from != to && own.count > 0) {
    std::memcpy(to, from, static_cast<size_t>(own.count * SizeOf(signature_.dtype)));
  }
}

void Movement::ReduceOwn() {
  const Chunk own = SliceOf(rank_);
  absl::InlinedVector<const std::byte*, 16> inputs;
  for (int member = 0; member < size_; ++member) {
    inputs.push_back(member == rank_ ? Input(own.begin) : Held(member));
  }
  std::byte* output = nullptr;
  if (signature_.operation == Operation::kAllReduce) {
    output = Output(own.begin);
  } else if (signature_.operation == Operation::kReduceScatter) {
    output = Output(own.begin - chunks_[static_cast<size_t>(rank_)].begin);
  } else {
    output = rank_ == signature_.root ? Output(own.begin) : Held(rank_);
  }
  ReduceByTree(signature_.dtype, signature_.reduce_op, inputs, {output}, 0, own.count);
}

}  // namespace lockstep::mpi
