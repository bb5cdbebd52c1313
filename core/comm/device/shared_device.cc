#include "core/comm/device/shared_device.h"

#include <cstddef>
#include <mutex>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "core/base/program.h"
#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

std::byte* MemoryOf(const Tensor& tensor) {
  if (!tensor.defined() || tensor.elements() == 0) return nullptr;
  CHECK(tensor.raw() != nullptr) << tensor.ToString() << " is released";
  return tensor.raw();
}

// Which of a round's members this is, of how many, and who queues.
struct Place {
  RoundBoard::Pair pair{};
  int members;
  int member;
  int leader;
};

class SharedDeviceCarrier final : public DeviceCarrier {
 public:
  SharedDeviceCarrier(std::shared_ptr<RoundBoard> board, const Place& place,
                      std::unique_ptr<DeviceStream> stream)
      : board_(std::move(board)), place_(place), stream_(std::move(stream)) {}

  void Begin(const DeviceCall& call) override {
    std::shared_ptr<Round> round = board_->Find(place_.pair, call.number, place_.members);
    round->Put(place_.member, {.buffers = {.input = MemoryOf(call.call.input),
                                           .output = MemoryOf(call.call.output)},
                               .ready = call.ready});
    std::lock_guard lock(mutex_);
    rounds_.emplace(call.number, std::move(round));
  }

  DeviceMarkPtr Move(const DeviceCall& call) override {
    const std::shared_ptr<Round> round = Find(call.number);
    if (place_.member == place_.leader) Lead(call.call.signature, *round);
    const Round::End end = round->AwaitEnd();
    ThrowIfError(end.status);
    if (end.mark != nullptr) Forget(call.number);
    return end.mark;
  }

  DeviceMarkPtr GiveUp(const DeviceCall& call) override {
    const Round::End end = Find(call.number)->Withdraw();
    Forget(call.number);
    return end.mark;
  }

 private:
  std::shared_ptr<Round> Find(int64_t number) {
    std::lock_guard lock(mutex_);
    const auto found = rounds_.find(number);
    CHECK(found != rounds_.end());
    return found->second;
  }
  void Forget(int64_t number) {
    std::lock_guard lock(mutex_);
    rounds_.erase(number);
  }

  void Lead(const Signature& signature, Round& round) {
    const std::vector<Round::Offer>* offers = round.Claim();
    if (offers == nullptr) return;
    Round::End end;
    end.status = Catching([&] {
      Queue(signature, *offers);
      return absl::OkStatus();
    });
    // Where that failed, a part of the movement may be on its way.
    end.status.Update(Catching([&] {
      end.mark = stream_->Mark();
      return absl::OkStatus();
    }));
    round.Publish(std::move(end));
  }

  void Queue(const Signature& signature, const std::vector<Round::Offer>& offers) {
    absl::InlinedVector<MemberBuffers, 16> buffers;
    for (const Round::Offer& offer : offers) {
      stream_->Await(*offer.ready);
      buffers.push_back(offer.buffers);
    }
    if (!IsPointToPoint(signature.operation)) {
      RunTask(signature, buffers, CollectiveTask(), *stream_);
    } else if (signature.count > 0) {
      stream_->Copy(buffers[1].output, buffers[0].input, PayloadBytes(signature));
    }
  }

  const std::shared_ptr<RoundBoard> board_;
  const Place place_;
  const std::unique_ptr<DeviceStream> stream_;  // null where another leads
  std::mutex mutex_;                            // between the rank's thread and the call queue's
  std::map<int64_t, std::shared_ptr<Round>> rounds_;
};

}  // namespace

SharedDeviceRoutes::SharedDeviceRoutes(std::shared_ptr<RoundBoard> board, int size, int rank,
                                       DeviceStreamFactory make_stream)
    : board_(std::move(board)), size_(size), rank_(rank), make_stream_(std::move(make_stream)) {}

std::unique_ptr<DeviceCarrier> SharedDeviceRoutes::Collectives() {
  return std::make_unique<SharedDeviceCarrier>(
      board_, Place{.members = size_, .member = rank_, .leader = 0},
      rank_ == 0 ? make_stream_() : nullptr);
}

std::unique_ptr<DeviceCarrier> SharedDeviceRoutes::Messages(Direction direction, int member) {
  const bool receives = direction == Direction::kFrom;
  const RoundBoard::Pair pair = {.from = receives ? member : rank_,
                                 .to = receives ? rank_ : member};
  return std::make_unique<SharedDeviceCarrier>(
      board_, Place{.pair = pair, .members = 2, .member = receives ? 1 : 0, .leader = 1},
      receives ? make_stream_() : nullptr);
}

std::unique_ptr<DeviceRoutes> SharedDeviceConnector::Connect(const GroupInfo& group,
                                                             DeviceStreamFactory make_stream) {
  const int earlier = groups_[{group.members, group.name}]++;
  return std::make_unique<SharedDeviceRoutes>(boards_->Find(group, earlier), group.size(),
                                              group.rank, std::move(make_stream));
}

}  // namespace lockstep
