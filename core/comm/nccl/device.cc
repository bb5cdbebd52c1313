#include "core/comm/nccl/device.h"

#include <unistd.h>  // gethostname

#include <algorithm>   // std::max
#include <cstring>     // std::memcpy
#include <functional>  // std::hash
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/comm/device/exact_reduction.h"
#include "core/comm/nccl/calls.h"
#include "core/tensor/allocator.h"

namespace lockstep {
namespace {

constexpr char kIdLabel[] = "nccl id", kNodeLabel[] = "node";

// NCCL takes its time to connect GPUs, and that is no sign of a rank that does not come: the host
// sees those.
constexpr std::chrono::minutes kLeastTimeout(1);

// The multiprocessors of a GPU that a communicator's kernels may take; an H100 has 132. A kernel
// keeps them until the other ranks have come to it, so that ranks may begin those of several
// communicators in different orders only if all have room at once ("NCCL User Guide", "Using
// multiple NCCL communicators concurrently"): messages to and from seven others, and calls of four
// groups, take 120. NCCL_MAX_CTAS in the environment goes before both.
constexpr int kMostCtas = 16, kMostCtasOfMessages = 4;

// A name in host memory, on its way through the host's communicator.
class TravellingId {
 public:
  TravellingId()
      : tensor_(Tensor::Empty(allocator_, {NCCL_UNIQUE_ID_BYTES}, DType::kU8,
                              MemoryClass::kCommunication)) {}

  const Tensor& tensor() const { return tensor_; }
  void Set(const ncclUniqueId& id) { std::memcpy(tensor_.raw(), &id, sizeof(id)); }
  ncclUniqueId Get() const {
    ncclUniqueId id;
    std::memcpy(&id, tensor_.raw(), sizeof(id));
    return id;
  }

 private:
  CpuAllocator allocator_;
  const Tensor tensor_;
};

template <typename T>
T ValueOrThrow(absl::StatusOr<T> value) {
  ThrowIfError(value.status());
  return *std::move(value);
}

// The machine that this process runs on.
int64_t ThisNode() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return static_cast<int64_t>(std::hash<std::string_view>()(name));
}

// Called by all members.
absl::StatusOr<int> FindRanksANode(Communicator& ids) {
  CpuAllocator allocator;
  const auto empty = [&](int64_t count) {
    return Tensor::Empty(allocator, {count}, DType::kI64, MemoryClass::kCommunication);
  };
  const Tensor own = empty(1), all = empty(ids.size());
  own.data<int64_t>()[0] = ThisNode();
  LS_RETURN_IF_ERROR(ids.AllGather(own, all, kNodeLabel).Wait());
  return RanksANode(all.span<int64_t>());
}

// The communicator of all members, each of which calls this, on the calling thread's GPU. Waits for
// them.
absl::StatusOr<std::shared_ptr<nccl::Comm>> ConnectAll(Communicator& ids,
                                                       const nccl::Patience& patience) {
  TravellingId id;
  if (ids.rank() == 0) {
    LS_ASSIGN_OR_RETURN(const ncclUniqueId made, nccl::Comm::NewId());
    id.Set(made);
  }
  LS_RETURN_IF_ERROR(ids.Broadcast(id.tensor(), 0, kIdLabel).Wait());
  return nccl::Comm::Create(id.Get(), ids.size(), ids.rank(), kMostCtas, patience);
}

// One group as its carriers share it.
struct NcclGroup {
  NcclGroup(std::unique_ptr<Communicator> ids_of_group, std::shared_ptr<nccl::Comm> comm_of_members,
            nccl::Patience for_others, NcclReductions reductions_of_group, int ranks_a_node,
            nccl::Watch& over_gpu)
      : ids(std::move(ids_of_group)),
        comm(std::move(comm_of_members)),
        patience(std::move(for_others)),
        reductions(reductions_of_group),
        member{.size = ids->size(), .rank = ids->rank(), .ranks_a_node = ranks_a_node},
        watch(over_gpu) {}

  bool ReducesExactly(const Signature& signature) const {
    return reductions == NcclReductions::kExact && IsReduction(signature.operation);
  }

  // Call queues have threads of their own, and share `ids`: they take turns to call, and wait
  // together.
  Work Call(const std::function<Work(Communicator&)>& call) {
    std::lock_guard lock(mutex);
    return call(*ids);
  }

  const std::unique_ptr<Communicator> ids;  // the group's, for names alone
  const std::shared_ptr<nccl::Comm> comm;   // of all members
  const nccl::Patience patience;
  const NcclReductions reductions;
  const DeviceMember member;
  nccl::Watch& watch;
  std::mutex mutex;
};

// What the two kinds of carriers share: queueing, and the watch over what is queued.
class NcclCarrier : public DeviceCarrier {
 public:
  NcclCarrier(std::shared_ptr<NcclGroup> group, std::unique_ptr<DeviceStream> stream)
      : group_(std::move(group)), stream_(std::move(stream)) {}

  void Begin(const DeviceCall&) override {}

  DeviceMarkPtr Move(const DeviceCall& call) final {
    gpu_stream().MakeCurrent();
    const std::shared_ptr<nccl::Comm> comm = Connected();
    stream_->Await(*call.ready);
    try {
      Queue(*comm, call, gpu_stream());
    } catch (...) {
      // A part may be on its way, and wait for a member that does not come any more.
      static_cast<void>(WatchUntilMark(comm, call));
      throw;
    }
    return WatchUntilMark(comm, call);
  }

  // NCCL moves nothing without this member: what there is to wait for is what Move has queued.
  DeviceMarkPtr GiveUp(const DeviceCall&) final { return stream_->Mark(); }

 protected:
  virtual std::shared_ptr<nccl::Comm> Connected() = 0;
  virtual void Queue(nccl::Comm& comm, const DeviceCall& call, cuda::GpuStream& stream) = 0;

  NcclGroup& group() const { return *group_; }

 private:
  cuda::GpuStream& gpu_stream() { return static_cast<cuda::GpuStream&>(*stream_); }

  DeviceMarkPtr WatchUntilMark(const std::shared_ptr<nccl::Comm>& comm, const DeviceCall& call) {
    DeviceMarkPtr end = stream_->Mark();
    group_->watch.Add(comm, end,
                      absl::StrCat(DescribeCall(call.call.signature, call.call.label), " in ",
                                   group_->ids->group().ToString()),
                      [group = group_](const absl::Status& cause) { group->ids->Abort(cause); });
    return end;
  }

  const std::shared_ptr<NcclGroup> group_;
  const std::unique_ptr<DeviceStream> stream_;
};

class NcclCollectives final : public NcclCarrier {
 public:
  using NcclCarrier::NcclCarrier;

  int64_t HeldBytes(const Signature& signature) const override {
    return group().ReducesExactly(signature) ? ExactReductionBytes(signature, group().member) : 0;
  }

 private:
  std::shared_ptr<nccl::Comm> Connected() override { return group().comm; }
  void Queue(nccl::Comm& comm, const DeviceCall& call, cuda::GpuStream& stream) override {
    const DeviceMember& member = group().member;
    if (!group().ReducesExactly(call.call.signature)) {
      return nccl::QueueCollective(comm, call.call, member.size, member.rank, stream);
    }
    nccl::Peers peers(comm, stream);
    QueueExactReduction(call.call, member, call.held == nullptr ? nullptr : call.held->raw(),
                        stream, peers);
  }
};

using Direction = DeviceRoutes::Direction;

// The communicator for messages to or from another member, who calls this for the other direction
// at the same time. On the calling thread's GPU. Waits for that member.
absl::StatusOr<std::shared_ptr<nccl::Comm>> ConnectTwo(NcclGroup& group, Direction direction,
                                                       int member) {
  const bool sends = direction == Direction::kTo;
  TravellingId id;
  if (sends) {
    LS_ASSIGN_OR_RETURN(const ncclUniqueId made, nccl::Comm::NewId());
    id.Set(made);
  }
  Work work = group.Call([&](Communicator& ids) {
    return sends ? ids.Send(id.tensor(), member, kIdLabel)
                 : ids.Recv(id.tensor(), member, kIdLabel);
  });
  LS_RETURN_IF_ERROR(work.Wait());
  return nccl::Comm::Create(id.Get(), 2, sends ? 0 : 1, kMostCtasOfMessages, group.patience);
}

// Between processes, which cannot reach each other's GPUs by copies.
class NcclMessages final : public NcclCarrier {
 public:
  // `comm`: null where it is yet to be made.
  NcclMessages(std::shared_ptr<NcclGroup> group, std::unique_ptr<DeviceStream> stream,
               Direction direction, int member, std::shared_ptr<nccl::Comm> comm)
      : NcclCarrier(std::move(group), std::move(stream)),
        direction_(direction),
        member_(member),
        comm_(std::move(comm)) {}

 private:
  // Made for the first message, by the two that have a part in it, if it was not with the group.
  std::shared_ptr<nccl::Comm> Connected() override {
    if (comm_ == nullptr) comm_ = ValueOrThrow(ConnectTwo(group(), direction_, member_));
    return comm_;
  }
  void Queue(nccl::Comm& comm, const DeviceCall& call, cuda::GpuStream& stream) override {
    nccl::QueueMessage(comm, call.call, stream);
  }

  const Direction direction_;
  const int member_;
  std::shared_ptr<nccl::Comm> comm_;
};

// NCCL for collectives. Messages go by copies between GPUs where all members are threads of this
// process, and what a rank sends itself always does.
class NcclRoutes final : public DeviceRoutes {
 public:
  // `threads`: routes among the members; null where some are other processes. The context outlives
  // the routes.
  NcclRoutes(std::shared_ptr<NcclGroup> group, CudaContext& context,
             DeviceStreamFactory make_stream, std::unique_ptr<DeviceRoutes> threads)
      : group_(std::move(group)),
        context_(context),
        rank_(group_->ids->rank()),
        make_stream_(std::move(make_stream)),
        alone_(std::make_shared<RoundBoard>(), group_->ids->size(), rank_, make_stream_),
        threads_(std::move(threads)) {}

  // In the order of `routes`, so that no member waits for one that waits for a later one.
  absl::Status Connect(absl::Span<const Communicator::Route> routes) override {
    if (threads_ != nullptr) return absl::OkStatus();
    context_.MakeCurrent();
    for (const auto& [from, to] : routes) {
      if (from == to || (from != rank_ && to != rank_)) continue;
      const bool sends = from == rank_;
      const Direction direction = sends ? Direction::kTo : Direction::kFrom;
      const int other = sends ? to : from;
      std::shared_ptr<nccl::Comm>& comm = messages_[{direction, other}];
      if (comm != nullptr) continue;
      LS_ASSIGN_OR_RETURN(comm, ConnectTwo(*group_, direction, other));
    }
    return absl::OkStatus();
  }

  std::unique_ptr<DeviceCarrier> Collectives() override {
    return std::make_unique<NcclCollectives>(group_, make_stream_());
  }
  std::unique_ptr<DeviceCarrier> Messages(Direction direction, int member) override {
    if (threads_ != nullptr) return threads_->Messages(direction, member);
    if (member == rank_) return alone_.Messages(direction, member);
    const auto found = messages_.find(std::pair(direction, member));
    return std::make_unique<NcclMessages>(group_, make_stream_(), direction, member,
                                          found == messages_.end() ? nullptr : found->second);
  }

 private:
  const std::shared_ptr<NcclGroup> group_;
  CudaContext& context_;
  const int rank_;
  const DeviceStreamFactory make_stream_;
  std::map<std::pair<Direction, int>, std::shared_ptr<nccl::Comm>> messages_;  // by other member
  SharedDeviceRoutes alone_;
  const std::unique_ptr<DeviceRoutes> threads_;
};

}  // namespace

NcclGpu::NcclGpu(CudaContext& context, std::chrono::nanoseconds timeout, NcclReductions reductions,
                 Communicator& world, std::shared_ptr<RoundBoards> boards)
    : GpuDevice(context),
      patience_{.timeout = std::max<std::chrono::nanoseconds>(timeout, kLeastTimeout),
                .world_status = [&world] { return world.status(); }},
      reductions_(reductions),
      watch_(context.ordinal(), patience_) {
  if (boards != nullptr) threads_.emplace(std::move(boards));
}

absl::StatusOr<std::unique_ptr<DeviceRoutes>> NcclGpu::Connect(Communicator& group) {
  if (group.size() == 1) {
    return std::make_unique<SharedDeviceRoutes>(std::make_shared<RoundBoard>(), 1, 0,
                                                StreamFactory());
  }
  LS_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> ids,
                      group.Split(0, group.rank(), absl::StrCat(group.name(), ".nccl")));
  int ranks_a_node = 1;
  if (reductions_ == NcclReductions::kExact) {
    LS_ASSIGN_OR_RETURN(ranks_a_node, FindRanksANode(*ids));
  }
  context().MakeCurrent();
  LS_ASSIGN_OR_RETURN(std::shared_ptr<nccl::Comm> comm, ConnectAll(*ids, patience_));
  auto shared = std::make_shared<NcclGroup>(std::move(ids), std::move(comm), patience_, reductions_,
                                            ranks_a_node, watch_);
  return std::make_unique<NcclRoutes>(
      std::move(shared), context(), StreamFactory(),
      threads_.has_value() ? threads_->Connect(group.group(), StreamFactory()) : nullptr);
}

}  // namespace lockstep
