#include "strategies/testing/watched_calls.h"

#include <cstddef>
#include <set>
#include <string>
#include <utility>

#include "core/base/status.h"
#include "core/comm/communicator.h"
#include "core/tensor/dtype.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// A call, and what it has brought when it is over.
class ToldWork final : public WorkState {
 public:
  ToldWork(Work work, Tensor received, int rank, CallWatcher& watcher)
      : work_(std::move(work)), received_(std::move(received)), rank_(rank), watcher_(watcher) {}

  absl::Status Wait() override {
    const absl::Status status = work_.Wait();
    if (status.ok() && !is_told_) watcher_.Received(rank_, received_);
    is_told_ = true;
    received_ = Tensor();
    return status;
  }
  bool Done() override { return work_.Done(); }
  void Drop() override { work_ = Work(); }

 private:
  Work work_;
  Tensor received_;
  const int rank_;  // in the world
  CallWatcher& watcher_;
  bool is_told_ = false;
};

class WatchedCommunicator final : public Communicator {
 public:
  WatchedCommunicator(Communicator& host, int world_rank, CallWatcher& watcher)
      : Communicator(std::make_shared<const GroupInfo>(host.group()), host.ledger()),
        host_(host),
        world_rank_(world_rank),
        watcher_(watcher) {}
  WatchedCommunicator(std::unique_ptr<Communicator> host, int world_rank, CallWatcher& watcher)
      : WatchedCommunicator(*host, world_rank, watcher) {
    owned_ = std::move(host);
  }

  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key,
                                                      absl::string_view name) override {
    return OnTopOf(host_.Split(color, key, name));
  }
  absl::StatusOr<std::unique_ptr<Communicator>> SplitBy(
      absl::FunctionRef<Choice(int rank)> choice_of, absl::string_view name) override {
    return OnTopOf(host_.SplitBy(choice_of, name));
  }
  absl::Status ConnectRoutes(absl::Span<const Route> routes) override {
    return host_.ConnectRoutes(routes);
  }
  void Abort(const absl::Status& cause) override { host_.Abort(cause); }
  absl::Status status() const override { return host_.status(); }

 private:
  absl::StatusOr<std::unique_ptr<Communicator>> OnTopOf(
      absl::StatusOr<std::unique_ptr<Communicator>> host) const {
    if (!host.ok() || *host == nullptr) return host;
    return std::make_unique<WatchedCommunicator>(*std::move(host), world_rank_, watcher_);
  }

  void GiveUp(absl::string_view call) override {
    host_.Abort(absl::AbortedError(absl::StrCat("gave up ", call)));
  }

  Work Start(Call call) override {
    const Tensor received = call.output;
    const bool has_sent = call.input.defined() && call.input.elements() > 0;
    if (has_sent && IsFloating(call.input.dtype()) && size() > 1) {
      watcher_.Sends(world_rank_, call.input);
    }
    const bool brings =
        received.defined() && received.elements() > 0 && IsFloating(received.dtype()) && size() > 1;
    Work work = Pass(call);
    if (size() > 1) watcher_.Began(world_rank_);
    if (!brings) return work;
    return Work(std::make_shared<ToldWork>(std::move(work), received, world_rank_, watcher_));
  }

  // The same call of the host's group.
  Work Pass(const Call& call) {
    const Signature& s = call.signature;
    const absl::Span<const int64_t> counts = s.counts;
    switch (s.operation) {
      case Operation::kAllReduce:
        return host_.AllReduce(call.input, call.output, s.reduce_op, call.label);
      case Operation::kReduceScatter:
        return host_.ReduceScatter(call.input, call.output, s.reduce_op, call.label, counts);
      case Operation::kAllGather:
        return host_.AllGather(call.input, call.output, call.label, counts);
      case Operation::kBroadcast:
        return host_.Broadcast(call.input, s.root, call.label);
      case Operation::kReduce:
        return host_.Reduce(call.input, call.output, s.reduce_op, s.root, call.label);
      case Operation::kGather:
        return host_.Gather(call.input, call.output, s.root, call.label, counts);
      case Operation::kScatter:
        return host_.Scatter(call.input, call.output, s.root, call.label, counts);
      case Operation::kAllToAll:
        return host_.AllToAll(call.input, call.output, call.label);
      case Operation::kSend:
        return host_.Send(call.input, s.root, call.label);
      case Operation::kRecv:
        return host_.Recv(call.output, s.root, call.label);
      case Operation::kBarrier:
        return host_.Barrier(call.label);
      case Operation::kSplit:
        break;
    }
    LOG(FATAL) << "a split comes by itself";
  }

  std::unique_ptr<Communicator> owned_;  // null: somebody else keeps it
  Communicator& host_;
  const int world_rank_;
  CallWatcher& watcher_;
};

class WatchedDevice final : public RankDevice {
 public:
  WatchedDevice(std::unique_ptr<RankDevice> device, int rank, CallWatcher& watcher)
      : device_(std::move(device)), world_(device_->world(), rank, watcher) {}

  Kernels& kernels() override { return device_->kernels(); }
  Communicator& world() override { return world_; }

 private:
  const std::unique_ptr<RankDevice> device_;
  WatchedCommunicator world_;
};

class WatchedDevices final : public RankDevices {
 public:
  WatchedDevices(std::shared_ptr<RankDevices> devices, std::shared_ptr<CallWatcher> watcher)
      : devices_(std::move(devices)), watcher_(std::move(watcher)) {}

  HeldBytes held_bytes(NcclReductions reductions) const override {
    return devices_->held_bytes(reductions);
  }
  std::set<std::string> lacking_kernels() const override { return devices_->lacking_kernels(); }
  bool masks_documents() const override { return devices_->masks_documents(); }
  absl::StatusOr<std::unique_ptr<RankDevice>> Make(Communicator& world,
                                                   const Options& options) override {
    LS_ASSIGN_OR_RETURN(std::unique_ptr<RankDevice> device, devices_->Make(world, options));
    return std::make_unique<WatchedDevice>(std::move(device), world.rank(), *watcher_);
  }

 private:
  const std::shared_ptr<RankDevices> devices_;
  const std::shared_ptr<CallWatcher> watcher_;
};

}  // namespace

std::shared_ptr<RankDevices> WithWatchedCalls(std::shared_ptr<RankDevices> devices,
                                              std::shared_ptr<CallWatcher> watcher) {
  return std::make_shared<WatchedDevices>(std::move(devices), std::move(watcher));
}

}  // namespace lockstep
