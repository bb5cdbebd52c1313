#include "core/comm/mpi/launch.h"

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/comm/ledger.h"
#include "core/comm/mpi/communicator.h"
#include "core/comm/mpi/rank_state.h"

namespace lockstep::mpi {
namespace {

// What this rank knows to be the first cause.
Outcome FirstCause(const RankState& rank) {
  if (!rank.failed() || rank.AllSucceeded()) return {};
  const Failure& failure = *rank.failure();
  const bool is_told_here = rank.IsToldHere();
  if (failure.kind != Failure::Kind::kReported) {
    return {.status = rank.status(), .is_told_here = is_told_here};
  }
  const std::string prefix = absl::StrCat("rank ", failure.rank);
  return {.status = rank.size() == 1 ? failure.cause : Annotate(failure.cause, prefix),
          .reported_by = failure.rank,
          .is_told_here = is_told_here};
}

}  // namespace

Outcome RunRank(Process& process, int ranks, const LaunchOptions& options, const RankFunction& run,
                const std::function<void(const Outcome&)>& say) {
  const int world = process.NextWorld();
  if (process.rank() >= ranks) return {};
  auto ledger = std::make_unique<Ledger>(process.rank());
  Ledger& own = *ledger;
  const auto post_mortem = [&](const absl::Status& failure) {
    if (ranks > 1) WritePostMortem(options, own, failure);
  };
  const auto last_words = [&](const absl::Status& failure, bool is_told_here) {
    if (is_told_here) std::fprintf(stderr, "%s\n", std::string(failure.message()).c_str());
    post_mortem(failure);
    _exit(process.lost_exit_code());
  };
  const auto rank = std::make_shared<RankState>(
      process, world, ranks, absl::ToChronoNanoseconds(options.timeout), own, last_words);
  RankHandle handle(std::move(ledger), std::make_unique<MpiCommunicator>(rank));
  const absl::Status status = RunCatching(run, handle);

  RankState::Lock lock(rank->mutex());
  if (!status.ok()) rank->FailReported(status);
  rank->Wake();
  rank->Leave(lock, status.ok());
  rank->AwaitLeave(lock);
  Outcome outcome = FirstCause(*rank);
  if (outcome.status.ok()) return outcome;
  const absl::Status failure = rank->status();
  lock.unlock();
  post_mortem(failure);
  if (say) say(outcome);
  lock.lock();
  rank->AwaitSaid(lock);
  lock.unlock();
  return outcome;
}

}  // namespace lockstep::mpi
