#include "core/comm/nccl/calls.h"

#include <cstddef>

#include "core/comm/signature.h"
#include "core/cuda/error.h"
#include "glog/logging.h"

namespace lockstep::nccl {
namespace {

ncclDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return ncclFloat32;
    case DType::kF16:
      return ncclFloat16;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kF64:
      return ncclFloat64;
    case DType::kI32:
      return ncclInt32;
    case DType::kI64:
      return ncclInt64;
    case DType::kU8:
      return ncclUint8;
  }
  return ncclUint8;
}

ncclRedOp_t OperationOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return ncclSum;
    case ReduceOp::kProduct:
      return ncclProd;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kAverage:
      return ncclAvg;
  }
  return ncclSum;
}

// The first of several results that is an error; else whether any is still in progress.
class Results {
 public:
  void Add(ncclResult_t result) {
    if (first_ == ncclSuccess || (first_ == ncclInProgress && result != ncclSuccess)) {
      first_ = result;
    }
  }
  ncclResult_t get() const { return first_; }

 private:
  ncclResult_t first_ = ncclSuccess;
};

// Several calls that NCCL makes as one.
template <typename Calls>
ncclResult_t Together(Calls&& calls) {
  Results results;
  results.Add(ncclGroupStart());
  calls(results);
  results.Add(ncclGroupEnd());
  return results.get();
}

// One collective as one member makes it.
class Collective {
 public:
  Collective(const Call& call, const std::byte* input, int size, int rank, cudaStream_t stream)
      : signature_(call.signature),
        input_(input),
        output_(call.output.raw()),
        size_(size),
        rank_(rank),
        stream_(stream),
        type_(TypeOf(signature_.dtype)) {}

  ncclResult_t Queue(ncclComm_t comm) const {
    const auto count = static_cast<size_t>(signature_.count);
    const ncclRedOp_t op = OperationOf(signature_.reduce_op);
    const bool even = signature_.counts.empty();
    switch (signature_.operation) {
      case Operation::kAllReduce:
        return ncclAllReduce(input_, output_, count, type_, op, comm, stream_);
      case Operation::kReduce:
        return ncclReduce(input_, output_, count, type_, op, signature_.root, comm, stream_);
      case Operation::kBroadcast:
        return ncclBroadcast(input_, output_, count, type_, signature_.root, comm, stream_);
      case Operation::kReduceScatter:
        return even ? ncclReduceScatter(input_, output_, count / size_, type_, op, comm, stream_)
                    : ReduceParts(comm);
      case Operation::kAllGather:
        return even ? ncclAllGather(input_, output_, count / size_, type_, comm, stream_)
                    : BroadcastParts(comm);
      case Operation::kGather:
        return Gather(comm);
      case Operation::kScatter:
        return Scatter(comm);
      case Operation::kAllToAll:
        return AllToAll(comm);
      default:
        LOG(FATAL) << Name(signature_.operation) << " is no collective that moves data";
    }
  }

 private:
  Chunk ChunkOf(int member) const { return lockstep::ChunkOf(signature_, size_, member); }
  size_t Count(int member) const { return static_cast<size_t>(ChunkOf(member).count); }
  // Returns where a member's chunk begins in a buffer of all chunks; null if there is no buffer.
  template <typename T>
  T* At(T* whole, int member) const {
    return whole == nullptr ? nullptr : whole + ChunkOf(member).begin * SizeOf(signature_.dtype);
  }

  // NCCL's own collectives of chunks want equal ones.
  ncclResult_t ReduceParts(ncclComm_t comm) const {
    return Together([&](Results& results) {
      for (int member = 0; member < size_; ++member) {
        if (Count(member) == 0) continue;
        results.Add(ncclReduce(At(input_, member), member == rank_ ? output_ : nullptr,
                               Count(member), type_, OperationOf(signature_.reduce_op), member,
                               comm, stream_));
      }
    });
  }

  ncclResult_t BroadcastParts(ncclComm_t comm) const {
    return Together([&](Results& results) {
      for (int member = 0; member < size_; ++member) {
        if (Count(member) == 0) continue;
        results.Add(ncclBroadcast(member == rank_ ? input_ : nullptr, At(output_, member),
                                  Count(member), type_, member, comm, stream_));
      }
    });
  }

  ncclResult_t Gather(ncclComm_t comm) const {
    const bool is_root = rank_ == signature_.root;
    return Together([&](Results& results) {
      if (!is_root && Count(rank_) > 0) {
        results.Add(ncclSend(input_, Count(rank_), type_, signature_.root, comm, stream_));
      }
      for (int member = 0; is_root && member < size_; ++member) {
        if (member == rank_ || Count(member) == 0) continue;
        results.Add(ncclRecv(At(output_, member), Count(member), type_, member, comm, stream_));
      }
    });
  }

  ncclResult_t Scatter(ncclComm_t comm) const {
    const bool is_root = rank_ == signature_.root;
    return Together([&](Results& results) {
      if (!is_root && Count(rank_) > 0) {
        results.Add(ncclRecv(output_, Count(rank_), type_, signature_.root, comm, stream_));
      }
      for (int member = 0; is_root && member < size_; ++member) {
        if (member == rank_ || Count(member) == 0) continue;
        results.Add(ncclSend(At(input_, member), Count(member), type_, member, comm, stream_));
      }
    });
  }

  ncclResult_t AllToAll(ncclComm_t comm) const {
    return Together([&](Results& results) {
      for (int member = 0; member < size_; ++member) {
        if (member == rank_ || Count(member) == 0) continue;
        results.Add(ncclSend(At(input_, member), Count(member), type_, member, comm, stream_));
        results.Add(ncclRecv(At(output_, member), Count(member), type_, member, comm, stream_));
      }
    });
  }

  const Signature& signature_;
  const std::byte* const input_;
  std::byte* const output_;
  const int size_, rank_;
  const cudaStream_t stream_;
  const ncclDataType_t type_;
};

// The own chunk, from the input to the output of an operation that sends only the others'.
void CopyOwnPart(const Call& call, int size, int rank, cuda::GpuStream& stream) {
  const Signature& signature = call.signature;
  const Chunk chunk = ChunkOf(signature, size, rank);
  const int64_t begin = chunk.begin * SizeOf(signature.dtype);
  const int64_t bytes = chunk.count * SizeOf(signature.dtype);
  const bool is_root = rank == signature.root;
  const std::byte* from = call.input.raw();
  std::byte* to = call.output.raw();
  switch (signature.operation) {
    case Operation::kGather:
      if (!is_root) return;
      to += begin;
      break;
    case Operation::kScatter:
      if (!is_root) return;
      from += begin;
      break;
    case Operation::kAllToAll:
      from += begin;
      to += begin;
      break;
    default:
      return;
  }
  if (bytes > 0 && from != to) stream.Copy(to, from, bytes);
}

}  // namespace

void QueueCollective(Comm& comm, const Call& call, int size, int rank, cuda::GpuStream& stream) {
  if (call.signature.count == 0) return;
  stream.MakeCurrent();
  const auto queue = [&](const std::byte* input) {
    const Collective collective(call, input, size, rank, stream.get());
    comm.Queue([&](ncclComm_t nccl) { return collective.Queue(nccl); });
  };
  CopyOwnPart(call, size, rank, stream);
  if (call.signature.operation != Operation::kAllToAll || call.input.raw() != call.output.raw()) {
    return queue(call.input.raw());
  }
  // NCCL would receive over what it has yet to send: it sends from a copy.
  void* copy = nullptr;
  LS_CUDA(cudaMallocAsync(&copy, static_cast<size_t>(call.input.bytes()), stream.get()));
  stream.Copy(static_cast<std::byte*>(copy), call.input.raw(), call.input.bytes());
  queue(static_cast<std::byte*>(copy));
  LS_CUDA(cudaFreeAsync(copy, stream.get()));
}

void Peers::Exchange(absl::Span<const PeerMessage> messages) {
  if (messages.empty()) return;
  stream_.MakeCurrent();
  comm_.Queue([&](ncclComm_t nccl) {
    return Together([&](Results& results) {
      for (const PeerMessage& message : messages) {
        if (message.send_bytes > 0) {
          results.Add(ncclSend(message.send, static_cast<size_t>(message.send_bytes), ncclUint8,
                               message.member, nccl, stream_.get()));
        }
        if (message.receive_bytes > 0) {
          results.Add(ncclRecv(message.receive, static_cast<size_t>(message.receive_bytes),
                               ncclUint8, message.member, nccl, stream_.get()));
        }
      }
    });
  });
}

void QueueMessage(Comm& comm, const Call& call, cuda::GpuStream& stream) {
  if (call.signature.count == 0) return;
  stream.MakeCurrent();
  const auto count = static_cast<size_t>(call.signature.count);
  const ncclDataType_t type = TypeOf(call.signature.dtype);
  comm.Queue([&](ncclComm_t nccl) {
    return call.signature.operation == Operation::kSend
               ? ncclSend(call.input.raw(), count, type, 1, nccl, stream.get())
               : ncclRecv(call.output.raw(), count, type, 0, nccl, stream.get());
  });
}

}  // namespace lockstep::nccl
