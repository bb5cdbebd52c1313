#include "core/comm/launch.h"

#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/program.h"
#include "core/base/status.h"
#include "core/comm/communicator.h"
#include "core/comm/ledger.h"
#include "core/comm/local/local_world.h"

namespace lockstep {
namespace {

absl::Status RunRank(LocalWorld& world, int rank, const LaunchOptions& options,
                     const RankFunction& run) {
  auto ledger = std::make_unique<Ledger>(rank);
  std::unique_ptr<Communicator> comm = world.Join(rank, *ledger);
  RankHandle handle(std::move(ledger), std::move(comm));
  absl::Status status = RunCatching(run, handle);
  if (!status.ok()) world.Abort(rank, status);
  if (!world.status().ok() && world.size() > 1) {
    WritePostMortem(options, handle.ledger(), world.status());
  }
  return status;
}

// The same where there may be no memory even for a rank's beginning and end.
absl::Status RunRankCatching(LocalWorld& world, int rank, const LaunchOptions& options,
                             const RankFunction& run) {
  try {
    return RunRank(world, rank, options, run);
  } catch (const std::exception&) {
    absl::Status status = StatusOfException();
    world.Abort(rank, status);
    return status;
  }
}

absl::Status FirstCause(const LocalWorld& world, const std::vector<absl::Status>& results) {
  bool all_ok = true;
  for (const absl::Status& result : results) all_ok = all_ok && result.ok();
  if (all_ok) return absl::OkStatus();
  const std::optional<int> rank = world.failed_rank();
  if (!rank.has_value() || results[static_cast<size_t>(*rank)].ok()) return world.status();
  const absl::Status& cause = results[static_cast<size_t>(*rank)];
  return results.size() == 1 ? cause : Annotate(cause, absl::StrCat("rank ", *rank));
}

}  // namespace

absl::Status RunRanks(int ranks, const LaunchOptions& options, const RankFunction& run) {
  if (ranks < 1) {
    return InvalidArgument("cannot run ", ranks, " ranks");
  }
  LocalWorld world(ranks, {.timeout = options.timeout});
  std::vector<absl::Status> results(static_cast<size_t>(ranks));
  if (ranks == 1) {
    results[0] = RunRankCatching(world, 0, options, run);
    return FirstCause(world, results);
  }
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    try {
      threads.emplace_back([&world, &results, &options, &run, rank] {
        results[static_cast<size_t>(rank)] = RunRankCatching(world, rank, options, run);
      });
    } catch (const std::exception&) {  // no thread, or no memory: those that run are joined
      results[static_cast<size_t>(rank)] =
          Annotate(StatusOfException(), "cannot start a thread for the rank");
      world.Abort(rank, results[static_cast<size_t>(rank)]);
      break;
    }
  }
  for (std::thread& thread : threads) thread.join();
  return FirstCause(world, results);
}

}  // namespace lockstep
