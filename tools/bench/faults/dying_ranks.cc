// MPI's functions that send and receive, in place of the library's, as MPI's profiling interface
// has it (MPI 3.1, chapter 14): a program that is linked with this file is the same but for a rank
// that dies where a CallKill asks for it. Their only caller is core/comm/mpi/transport.cc, from one
// thread at a time.

#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "core/base/clock.h"
#include "core/comm/mpi/announcement.h"
#include "core/comm/mpi/transport.h"
#include "tools/bench/faults/call_kill.h"

namespace lockstep {
namespace {

using mpi::Transport;
using Channel = Transport::Channel;

// How long a peer may take to come to a collective. One that waits for another call of this rank
// first does not come at all: the kill is then left to a later call.
constexpr double kArrivalSeconds = 0.2;
// A rank that is to die in its wait has this long to begin to wait.
constexpr useconds_t kWaitMicros = 500;

// Whether a call with this label is one of MoveState's (core/run/leg/mesh_change.cc): of state, or
// of what ranks tell each other of their layouts first.
bool IsOfChange(const std::string& label) { return label == "change of mesh" || label == "layout"; }

class DyingRank {
 public:
  DyingRank() {
    const char* path = std::getenv(kCallKillVariable);
    if (path == nullptr) return;
    kill_ = MapCallKill(path, /*make=*/false).value();
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    if (rank_ < CallKill::kMostRanks) kill_->pids[static_cast<size_t>(rank_)] = getpid();
  }

  void Receives(int from, int tag, MPI_Request request) {
    if (Transport::ChannelOf(tag) == Channel::kAnnouncement) arrivals_[{from, tag}] = request;
  }

  // This rank is about to send a message of a call. It may die here, or the receiver may.
  void Sends(const void* bytes, int size, int to, int tag) {
    const Channel channel = Transport::ChannelOf(tag);
    if (kill_ == nullptr || channel == Channel::kNote) return;
    const int context = tag >> Transport::kChannelBits;
    is_data_ = channel == Channel::kData || channel == Channel::kMessageData;
    if (channel == Channel::kAnnouncement || channel == Channel::kMessage) {
      const auto announcement =
          mpi::Decode({static_cast<const std::byte*>(bytes), static_cast<size_t>(size)});
      announced_[context] = {.operation = announcement.value().signature.operation,
                             .is_of_change = IsOfChange(announcement.value().label)};
    }
    // The answer to a message is of a call of its sender's.
    now_ =
        channel == Channel::kTaken ? Announced{.operation = Operation::kRecv} : announced_[context];
    if (channel == Channel::kAnnouncement) {
      if (IsChosen(CallMoment::kIsAwaited, rank_) && HasArrived(to, tag)) Die();
      if (IsChosen(CallMoment::kWaits, to) && HasArrived(to, tag)) {
        usleep(kWaitMicros);
        EndBySignal(kill_->pids[static_cast<size_t>(to)]);
      }
    }
  }

  // The message is on its way.
  void HasSent(int tag) {
    if (kill_ == nullptr || Transport::ChannelOf(tag) == Channel::kNote) return;
    if (IsChosen(CallMoment::kHasSent, rank_)) Die();
  }

 private:
  // A call, as this rank has announced it.
  struct Announced {
    Operation operation = Operation::kBarrier;
    bool is_of_change = false;
  };

  // Whether `victim` is to die at this call.
  bool IsChosen(CallMoment moment, int victim) {
    return kill_->state == CallKill::kAsked && kill_->moment == moment && kill_->rank == victim &&
           (now_.is_of_change || !kill_->only_changes) && kill_->moments_left.fetch_sub(1) <= 0;
  }

  // Whether a member's announcement of the collective that this rank is about to announce is there,
  // so that the member waits for this rank. Ranks are ready to receive it before they announce
  // theirs (core/comm/mpi/collective_queue.cc).
  bool HasArrived(int member, int tag) {
    const MPI_Request arrival = arrivals_.at({member, tag});
    const int64_t begin = NowNanos();
    int has_arrived = 0;
    while (true) {
      PMPI_Request_get_status(arrival, &has_arrived, MPI_STATUS_IGNORE);
      if (has_arrived != 0 || SecondsSince(begin) > kArrivalSeconds) return has_arrived != 0;
      sched_yield();
    }
  }

  void EndBySignal(pid_t process) {
    int asked = CallKill::kAsked;
    if (!kill_->state.compare_exchange_strong(asked, CallKill::kTaken)) return;
    kill_->operation = now_.operation;
    kill_->is_of_change = now_.is_of_change;
    kill_->is_data = is_data_;
    kill_->state = CallKill::kDone;
    kill(process, SIGKILL);
  }

  void Die() { EndBySignal(getpid()); }

  CallKill* kill_ = nullptr;  // null: nobody asks for any
  int rank_ = 0;
  std::map<std::pair<int, int>, MPI_Request> arrivals_;  // of announcements, by sender and tag
  // The last collectives and messages that were announced, by context.
  std::map<int, Announced> announced_;
  // What is sent.
  Announced now_;
  bool is_data_ = false;
};

DyingRank& Self() {
  static DyingRank self;
  return self;
}

}  // namespace
}  // namespace lockstep

extern "C" {

int MPI_Isend(const void* from, int count, MPI_Datatype type, int to, int tag, MPI_Comm world,
              MPI_Request* request) {
  lockstep::Self().Sends(from, count, to, tag);
  const int error = PMPI_Isend(from, count, type, to, tag, world, request);
  lockstep::Self().HasSent(tag);
  return error;
}

int MPI_Irecv(void* to, int count, MPI_Datatype type, int from, int tag, MPI_Comm world,
              MPI_Request* request) {
  const int error = PMPI_Irecv(to, count, type, from, tag, world, request);
  lockstep::Self().Receives(from, tag, *request);
  return error;
}

}  // extern "C"
