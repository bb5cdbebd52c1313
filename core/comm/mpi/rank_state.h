#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/comm/group_info.h"
#include "core/comm/ledger.h"
#include "core/comm/mpi/failure.h"
#include "core/comm/mpi/process.h"
#include "core/comm/mpi/transport.h"

namespace lockstep::mpi {

// Calls in flight that go on when somebody drives them.
class InFlight {
 public:
  virtual ~InFlight() = default;
  // Carries them as far as can be without waiting. Called with the rank's mutex held.
  virtual void Advance() = 0;
  // Whether there are any.
  virtual bool Busy() const = 0;
  // Whether data of one is on its way, and not only word of it awaited.
  virtual bool MovesData() const = 0;
  // After a failure: gives up what is to be received. Returns whether that is over.
  virtual bool Settle() = 0;
};

// What the groups of one rank share: the lock, the transport, who drives it, and what is known of
// the other ranks and of failure.
//
// MPI moves data only while it is called. Threads that wait for a call drive all calls of the rank.
// While none does, a thread of the rank looks after them: every few dozen microseconds while data
// moves; where only word from others is awaited ever more rarely, for each look takes the core from
// the thread that computes; and when there are no calls, now and then, for news of other ranks.
class RankState {
 public:
  using Lock = std::unique_lock<std::mutex>;
  using TimePoint = std::chrono::steady_clock::time_point;
  // How long MPI may take to hand over what has arrived.
  static constexpr std::chrono::milliseconds kLastLook{100};

  // The first `size` processes are the ranks of the world with this number; this is one of them.
  // `last_words` is called when the launcher is about to kill a process whose own threads have not
  // come to see that, busy as they are; it ends the process. `is_told_here`: this rank is the one
  // that tells the user.
  using LastWords = std::function<void(const absl::Status& failure, bool is_told_here)>;
  RankState(Process& process, int world, int size, std::chrono::nanoseconds timeout, Ledger& ledger,
            LastWords last_words);
  ~RankState();

  // Guards all of the rank's groups, and all use of MPI.
  std::mutex& mutex() { return mutex_; }
  int rank() const { return process_.rank(); }
  int size() const { return size_; }
  std::chrono::nanoseconds timeout() const { return timeout_; }
  Ledger& ledger() { return ledger_; }

  // --- with the mutex held -----------------------------------------------------------------------
  Transport& transport() { return transport_; }

  void Add(InFlight* calls);
  void Remove(InFlight* calls);

  // There is something new to drive.
  void Wake();

  // Drives everything until `over` or the deadline; returns what `over` said last.
  template <typename Over>
  bool WaitUntil(Lock& lock, Over&& over, TimePoint deadline) {
    ++drivers_;
    Pauses pauses(process_.has_own_core());
    bool is_over = over();
    while (!is_over) {
      Advance();
      is_over = over();
      if (is_over || std::chrono::steady_clock::now() >= deadline) break;
      lock.unlock();
      pauses.Next();
      lock.lock();
    }
    --drivers_;
    return is_over;
  }

  // The transport's address of a rank within a group of this world.
  Transport::Address Address(int rank, int context, Transport::Channel channel) const;
  // The first of the contexts that no group of this rank has yet; and marks them as taken up to
  // `end`.
  int next_context() const { return next_context_; }
  void TakeContexts(int end);

  // A call of another rank was seen.
  void Heard(int rank, const std::shared_ptr<const GroupInfo>& group, Operation operation,
             int64_t sequence);

  bool HasLeft(int rank) const { return ranks_[static_cast<size_t>(rank)].left; }

  // --- failure: the first one that a rank hears of stands ----------------------------------------
  void FailReported(const absl::Status& cause);  // by this rank's runner
  void FailDropped(absl::string_view call);      // this rank goes away amid a call
  void FailCall(const absl::Status& cause);
  void FailStopped();  // the launcher has told this rank to stop
  bool failed() const { return failure_.has_value(); }
  const std::optional<Failure>& failure() const { return failure_; }
  // Whether this rank is the one that tells the user of the failure; among ranks that hear each
  // other, one is.
  bool IsToldHere() const { return failed() && failure_->noticed_by == rank(); }
  // Whether calls may end because of the failure: the other ranks have said what they called last
  // and receive no more, so that nobody reads this rank's memory, or have had the time for it.
  enum class End { kNotYet, kQuiet, kGivenUp };
  End MayEnd() const;
  // OK, or the failure with the last call of every rank.
  absl::Status status() const;

  // This rank leaves, having done what it had to or not: tells the others, and sees what it has
  // sent off.
  void Leave(Lock& lock, bool succeeded);
  // Waits until all have left, however long a rank works: it says once a second that it is alive.
  // Fails where one that has not left is silent for the timeout. After a failure, waits for a
  // moment only.
  void AwaitLeave(Lock& lock);
  // After a failure, when this rank has said what there was to say: lets the others do so too, for
  // launchers kill all processes as soon as one of them has ended.
  void AwaitSaid(Lock& lock);
  // Whether all have left and succeeded.
  bool AllSucceeded() const;

 private:
  // How a waiting thread passes the time: ever more patiently.
  class Pauses {
   public:
    explicit Pauses(bool own_core) : own_core_(own_core) {}
    void Next();

   private:
    const bool own_core_;
    int64_t begin_nanos_ = 0;
  };

  struct Other {
    bool left = false;
    bool answered = false;  // since the failure, if it had not left before
    bool settled = false;
    bool succeeded = false;  // when it left
    bool said = false;
    int64_t heard_nanos = 0;  // when its last note came
    std::string last_call{};  // as it told
    // Its last call that was seen.
    std::shared_ptr<const GroupInfo> group{};
    Operation operation = Operation::kBarrier;
    int64_t sequence = -1;
  };

  void Advance();
  void LookForSignals();
  // Tells the ranks that have left that this one is still at work, now and then.
  void TellAlive();
  void Run();  // the rank's own thread
  // How long the rank's thread sleeps until it looks again.
  std::chrono::nanoseconds Nap() const;
  void Fail(Failure failure);
  // A failure that another rank has told.
  void Hear(const Failure& failure);
  void Tell(Note::Kind kind);
  Note OwnNote(Note::Kind kind) const;
  void Listen();
  void Settle();
  // Waits for all that have not fallen silent, for a moment only.
  void WaitForAnswering(Lock& lock, bool (*over)(const Other&));
  std::string LastCallOf(int rank) const;
  // Ranks that have not left, and were silent for the timeout since this rank began to wait.
  std::vector<int> SilentSince(int64_t wait_nanos) const;
  // Ranks that have said nothing since the failure: "rank 2", "ranks 2, 3"; "" if there are none.
  std::string SilentRanks() const;

  Process& process_;
  const int size_;
  const std::chrono::nanoseconds timeout_;
  Ledger& ledger_;
  const LastWords last_words_;
  const int world_;  // its number

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Transport transport_;
  std::vector<InFlight*> calls_;
  int drivers_ = 0;  // threads that wait
  bool ending_ = false;
  int next_context_ = 0;          // within this world
  int64_t last_look_nanos_ = 0;   // at the process's signals
  int64_t last_news_nanos_ = 0;   // a call of this rank, or word of another's
  int64_t last_alive_nanos_ = 0;  // when this rank last told that it is alive
  std::vector<Other> ranks_;
  std::optional<Failure> failure_;
  int64_t failed_nanos_ = 0;
  std::thread thread_;
};

}  // namespace lockstep::mpi
