#include "core/comm/mpi/rank_state.h"

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/clock.h"
#include "core/base/program.h"
#include "glog/logging.h"

namespace lockstep::mpi {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// The rank's thread looks after data that moves, or after news, so often. Word of others' calls is
// looked for as rarely as adds a quarter to the time for which nothing has come, at most so rarely.
constexpr microseconds kBusyNap(50), kLongestNap(500);
constexpr int64_t kNapFraction = 4;
constexpr milliseconds kIdleNap(2);
// So long the other ranks have to say what they called last and to end what they receive. A
// launcher that has sent SIGTERM gives a second for everything.
constexpr int64_t kAnswerNanos = 300'000'000;
// So long a rank that has failed stays for others to end as well.
constexpr milliseconds kFarewell(500);
constexpr milliseconds kLastPosts(100);
constexpr int64_t kLookNanos = 1'000'000;
constexpr int64_t kLastWordsNanos = 700'000'000;
// A rank at work says so often that it is alive; more often where the timeout is short, so that one
// late note is no silence.
constexpr int64_t kAliveNanos = 1'000'000'000;
constexpr int64_t kNotesWithinTimeout = 8;
// A context is the number of the world and that of a group, so many bits each.
constexpr int kContextBits = 14;

}  // namespace

RankState::RankState(Process& process, int world, int size, std::chrono::nanoseconds timeout,
                     Ledger& ledger, LastWords last_words)
    : process_(process),
      size_(size),
      timeout_(timeout),
      ledger_(ledger),
      last_words_(std::move(last_words)),
      world_(world),
      ranks_(static_cast<size_t>(size)) {
  CHECK_LT(world, 1 << kContextBits) << "too many worlds in one process";
  CHECK_LE(size, process.size());
  CHECK_LT(process.rank(), size);
  thread_ = std::thread([this] { Run(); });
}

RankState::~RankState() {
  {
    Lock lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void RankState::Add(InFlight* calls) { calls_.push_back(calls); }

void RankState::Remove(InFlight* calls) { std::erase(calls_, calls); }

Transport::Address RankState::Address(int rank, int context, Transport::Channel channel) const {
  return {.rank = rank, .context = world_ << kContextBits | context, .channel = channel};
}

void RankState::TakeContexts(int end) {
  CHECK_LT(end, 1 << kContextBits) << "too many groups";
  next_context_ = end;
}

void RankState::Wake() {
  last_news_nanos_ = NowNanos();
  wake_.notify_one();
}

void RankState::Heard(int rank, const std::shared_ptr<const GroupInfo>& group, Operation operation,
                      int64_t sequence) {
  Other& other = ranks_[static_cast<size_t>(rank)];
  other.group = group;
  other.operation = operation;
  other.sequence = sequence;
  last_news_nanos_ = NowNanos();
}

void RankState::FailReported(const absl::Status& cause) {
  CHECK(!cause.ok());
  Fail({.kind = Failure::Kind::kReported, .rank = rank(), .cause = cause, .noticed_by = rank()});
}

void RankState::FailDropped(absl::string_view call) {
  Fail({.kind = Failure::Kind::kDropped,
        .rank = rank(),
        .cause = absl::AbortedError(absl::StrCat(
            "rank ", rank(), " gave up ", call,
            " without waiting for it, as a step does that ends with an error or an exception")),
        .noticed_by = rank()});
}

void RankState::FailCall(const absl::Status& cause) {
  Fail({.kind = Failure::Kind::kCall, .rank = -1, .cause = cause, .noticed_by = rank()});
}

void RankState::FailStopped() {
  Fail({.kind = Failure::Kind::kStopped,
        .rank = rank(),
        .cause = absl::AbortedError(absl::StrCat(
            "rank ", rank(),
            " was told to stop (SIGTERM), as mpirun and srun do with all ranks once one of them "
            "has died or ended early")),
        .noticed_by = rank()});
}

void RankState::Fail(Failure failure) {
  const bool first = !failure_.has_value();
  if (!first && !failure.Explains(*failure_)) return;
  failure_ = std::move(failure);
  if (first) {
    failed_nanos_ = NowNanos();
    Other& own = ranks_[static_cast<size_t>(rank())];
    if (!own.left) own.last_call = ledger_.DescribeLast();
    own.answered = !own.left;
  }
  Tell(Note::Kind::kFailure);
}

void RankState::Hear(const Failure& failure) {
  if (failed() && !failure.Explains(*failure_) && failure.GoesBefore(*failure_)) {
    failure_ = failure;
    return;  // whoever has told it has told all
  }
  Fail(failure);
}

RankState::End RankState::MayEnd() const {
  if (!failed()) return End::kNotYet;
  const bool quiet = std::all_of(ranks_.begin(), ranks_.end(),
                                 [](const Other& other) { return other.settled || other.left; });
  if (quiet) return End::kQuiet;
  return NowNanos() - failed_nanos_ > kAnswerNanos ? End::kGivenUp : End::kNotYet;
}

absl::Status RankState::status() const {
  if (!failed()) return absl::OkStatus();
  const absl::Status cause = failure_->ForAll();
  std::string text(cause.message());
  // What led to the launcher's signal comes first.
  const std::string silent = SilentRanks();
  if (failure_->kind == Failure::Kind::kStopped && !silent.empty()) {
    text = absl::StrCat(silent, " died or does not answer; the launcher has then told rank ",
                        failure_->rank, " to stop (SIGTERM)");
  }
  absl::StrAppend(&text, ". Last calls:");
  for (int rank = 0; rank < size_; ++rank) {
    absl::StrAppend(&text, rank == 0 ? " rank " : "; rank ", rank, ": ", LastCallOf(rank));
  }
  return absl::Status(cause.code(), text);
}

std::string RankState::SilentRanks() const {
  std::vector<int> silent;
  for (int rank = 0; rank < size_; ++rank) {
    const Other& other = ranks_[static_cast<size_t>(rank)];
    if (!other.answered && !other.left) silent.push_back(rank);
  }
  if (silent.empty()) return "";
  return absl::StrCat(silent.size() == 1 ? "rank " : "each of the ranks ",
                      absl::StrJoin(silent, ", "));
}

std::string RankState::LastCallOf(int rank) const {
  const Other& other = ranks_[static_cast<size_t>(rank)];
  if (other.answered) return other.last_call;
  if (other.left) return absl::StrCat("has left; last: ", other.last_call);
  if (other.sequence < 0) return "does not answer, and was not heard of before";
  return absl::StrCat("does not answer; last heard of: ", Name(other.operation), " #",
                      other.sequence, " of ", other.group->ToString());
}

void RankState::Leave(Lock& lock, bool succeeded) {
  Other& own = ranks_[static_cast<size_t>(rank())];
  if (own.left) return;
  own.left = true;
  own.succeeded = succeeded;
  if (!own.answered) own.last_call = ledger_.DescribeLast();
  Tell(Note::Kind::kLeft);
  // MPI keeps small ones itself; the others need their receivers, who may be dead.
  WaitUntil(
      lock, [this] { return !transport_.HasPosts(); },
      std::chrono::steady_clock::now() + (failed() ? kLastPosts : kFarewell));
}

void RankState::AwaitLeave(Lock& lock) {
  const auto all_left = [this] {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Other& other) { return other.left; });
  };
  const int64_t wait_nanos = NowNanos();
  const auto is_silent = [&] { return !SilentSince(wait_nanos).empty(); };
  const auto is_over = [&] { return all_left() || failed(); };
  while (!is_over()) {
    WaitUntil(
        lock, [&] { return is_over() || is_silent(); }, TimePoint::max());
    // A process that was stopped itself finds the notes of the others when it is woken up.
    WaitUntil(
        lock, [&] { return is_over() || !is_silent(); },
        std::chrono::steady_clock::now() + kLastLook);
    if (is_over() || !is_silent()) continue;
    const std::vector<int> silent = SilentSince(wait_nanos);
    FailCall(absl::DeadlineExceededError(absl::StrCat(
        "no answer within ", FormatDuration(std::chrono::duration<double>(timeout_).count()), ": ",
        RanksText(silent), silent.size() == 1 ? " has not left, and is" : " have not left, and are",
        " stopped or cannot be reached")));
    // Others may notice it at the same time: all choose the same one to tell of it.
    WaitUntil(
        lock, [this] { return MayEnd() != End::kNotYet; }, TimePoint::max());
  }
  WaitForAnswering(lock, [](const Other& other) { return other.left; });
}

std::vector<int> RankState::SilentSince(int64_t wait_nanos) const {
  const int64_t now = NowNanos();
  std::vector<int> silent;
  for (int rank = 0; rank < size_; ++rank) {
    const Other& other = ranks_[static_cast<size_t>(rank)];
    if (other.left) continue;
    const std::chrono::nanoseconds silence(now - std::max(wait_nanos, other.heard_nanos));
    if (silence > timeout_) silent.push_back(rank);
  }
  return silent;
}

void RankState::AwaitSaid(Lock& lock) {
  ranks_[static_cast<size_t>(rank())].said = true;
  Tell(Note::Kind::kSaid);
  WaitForAnswering(lock, [](const Other& other) { return other.said; });
}

void RankState::WaitForAnswering(Lock& lock, bool (*over)(const Other&)) {
  const auto all = [&] {
    return std::all_of(ranks_.begin(), ranks_.end(), [&](const Other& other) {
      return over(other) || (!other.answered && !other.left);
    });
  };
  WaitUntil(lock, all, std::chrono::steady_clock::now() + kFarewell);
}

bool RankState::AllSucceeded() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const Other& other) { return other.left && other.succeeded; });
}

Note RankState::OwnNote(Note::Kind kind) const {
  const Other& own = ranks_[static_cast<size_t>(rank())];
  return {
      .kind = kind, .failure = failure_, .last_call = own.last_call, .succeeded = own.succeeded};
}

void RankState::Tell(Note::Kind kind) {
  const std::vector<std::byte> bytes = Encode(OwnNote(kind));
  for (int other = 0; other < size_; ++other) {
    if (other == rank()) continue;
    transport_.Post(Address(other, 0, Transport::Channel::kNote), bytes);
  }
}

void RankState::Listen() {
  while (const auto letter = transport_.Take(Address(0, 0, Transport::Channel::kNote).context,
                                             Transport::Channel::kNote)) {
    const absl::StatusOr<Note> note = DecodeNote(letter->bytes);
    if (!note.ok()) {
      FailCall(absl::Status(note.status().code(), absl::StrCat("from rank ", letter->rank, ": ",
                                                               note.status().message())));
      continue;
    }
    Other& other = ranks_[static_cast<size_t>(letter->rank)];
    other.heard_nanos = NowNanos();
    if (!other.answered && !other.left) other.last_call = note->last_call;
    switch (note->kind) {
      case Note::Kind::kLeft:
        other.left = true;
        other.succeeded = note->succeeded;
        break;
      case Note::Kind::kSettled:
        other.settled = true;
        break;
      case Note::Kind::kSaid:
        other.said = true;
        break;
      case Note::Kind::kAlive:
        break;
      case Note::Kind::kFailure:
        other.answered = !other.left;
        // Passed on, so that all answer, whoever of them heard of it first.
        Hear(*note->failure);
        break;
    }
  }
}

void RankState::Advance() {
  // In this order: a rank that is seen to have left has sent before what it will ever send.
  Listen();
  for (InFlight* calls : calls_) calls->Advance();
  if (failed() && !ranks_[static_cast<size_t>(rank())].settled) Settle();
  transport_.HasPosts();
  if (!transport_.status().ok()) FailCall(transport_.status());
  LookForSignals();
  TellAlive();
}

void RankState::TellAlive() {
  if (failed() || HasLeft(rank())) return;
  const int64_t now = NowNanos();
  const int64_t period = std::min<int64_t>(kAliveNanos, timeout_.count() / kNotesWithinTimeout);
  if (now - last_alive_nanos_ < period) return;
  last_alive_nanos_ = now;
  for (int other = 0; other < size_; ++other) {
    if (!HasLeft(other)) continue;
    transport_.Post(Address(other, 0, Transport::Channel::kNote),
                    Encode(OwnNote(Note::Kind::kAlive)));
  }
}

void RankState::LookForSignals() {
  const int64_t now = NowNanos();
  if (now - last_look_nanos_ < kLookNanos) return;
  last_look_nanos_ = now;
  if (!process_.Stopped()) return;
  FailStopped();
  const bool busy = drivers_ == 0 && !ranks_[static_cast<size_t>(rank())].left;
  if (busy && now - failed_nanos_ > kLastWordsNanos) last_words_(status(), IsToldHere());
}

void RankState::Settle() {
  bool all = true;
  for (InFlight* calls : calls_) all = calls->Settle() && all;
  if (!all) return;
  ranks_[static_cast<size_t>(rank())].settled = true;
  Tell(Note::Kind::kSettled);
}

std::chrono::nanoseconds RankState::Nap() const {
  if (drivers_ > 0) return kIdleNap;
  bool is_busy = false;
  for (const InFlight* calls : calls_) {
    if (calls->MovesData()) return kBusyNap;
    is_busy = is_busy || calls->Busy();
  }
  if (!is_busy) return kIdleNap;
  const std::chrono::nanoseconds silent((NowNanos() - last_news_nanos_) / kNapFraction);
  return std::clamp<std::chrono::nanoseconds>(silent, kBusyNap, kLongestNap);
}

void RankState::Run() {
  Lock lock(mutex_);
  while (!ending_) {
    try {
      if (drivers_ == 0) Advance();
    } catch (const std::exception&) {
      FailCall(StatusOfException());
    }
    wake_.wait_for(lock, Nap());
  }
}

void RankState::Pauses::Next() {
  constexpr int64_t kPollNanos = 20'000, kYieldNanos = 1'000'000;
  const int64_t now = NowNanos();
  if (begin_nanos_ == 0) begin_nanos_ = now;
  const int64_t waited = now - begin_nanos_;
  if (own_core_ && waited < kPollNanos) {
    __builtin_ia32_pause();
  } else if (waited < kYieldNanos) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(kBusyNap);
  }
}

}  // namespace lockstep::mpi
