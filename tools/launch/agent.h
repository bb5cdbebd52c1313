// The launcher's loop: starts the ranks of a run, and starts them again when they end too early.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/config/best_settings.h"

namespace lockstep {

// What to start on some slots.
struct Placement {
  int ranks = 0;                     // 0: no mesh fits
  std::string formation;             // for people: "ddp dp=4"
  std::vector<std::string> program;  // of each rank, with its arguments but for --resume
};

struct AgentOptions {
  std::string out;                     // run directory, absolute
  int64_t steps = 0;                   // train.steps
  BestSettings best = {};              // may end the run before its last step
  int min_ranks = 1;                   // with fewer it waits
  int most_ranks = 1;                  // with as many it looks for no more
  int max_restarts = 3;                // one after another without a new checkpoint in between
  double longest_start_seconds = 600;  // from the launcher's start until ranks write to `out`
  std::string launcher;                // "mpirun -n {ranks} --host {hosts}"
  std::string worker;                  // path of :worker
  std::string discovery_script;        // of hosts (discovery.h); empty: all ranks have a place
  double longest_discovery_seconds = 60;
  std::function<absl::StatusOr<Placement>(int ranks)> place;
};

// Runs until the run is complete, is stopped, or cannot go on. Returns the exit code for the
// launcher:
//   - 0: the run is complete;
//   - kStoppedExitCode, 75: SIGINT, SIGTERM, SIGHUP or SIGUSR1 has had the ranks write a
//   checkpoint; those that the process ignores when RunAgent is called (nohup) stay ignored;
//   - 128 + signal: a second signal, or one that came before ranks had begun with the run
//     directory, has ended them at once;
//   - that of ranks which ended with an error that no restart mends, and that they have told;
//   - kRankLostExitCode, 69: with max_restarts = 0, a rank has told why it ended.
// An error of its own:
//   - Unavailable after max_restarts, or where fewer than min_ranks were at hand for ten minutes;
//   - FailedPrecondition where somebody has removed the run directory meanwhile;
//   - that of the discovery script where it fails before it has ever worked. Later the script is
//     asked again, for up to ten minutes.
// A launcher that has not ended ten seconds after a rank has ended with an error is ended: it waits
// for a host that it cannot reach. Where the ranks are fewer than most_ranks, RunAgent asks for
// slots whenever they have saved a checkpoint, and where a larger formation has a place, has them
// stop after their step with a checkpoint, and starts that formation. Tells the standard error
// stream of each restart, and at the end prints the table of all. For the only thread of a process
// without children.
absl::StatusOr<int> RunAgent(const AgentOptions& options);

}  // namespace lockstep
