// Runs under the launcher, for its tests.

#pragma once

#include <signal.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/subprocess.h"
#include "strategies/testing/launched_run.h"
#include "tools/launch/rank_processes.h"

namespace lockstep {

inline constexpr double kLongestSeconds = 60;  // for what a test waits for

// A run whose ranks soon give up waiting for each other.
inline const std::vector<std::string> kSoon = {"--set", "run.timeout_seconds=2"};

// A run of 300 steps with a checkpoint every 25, in path("out"), beside the same one of `single`.
// The test's data must have the launcher and the program of `single`.
class LaunchTest : public LaunchedRunTest {
 protected:
  LaunchTest();

  std::string out() const;

  // Starts the launcher with `flags`, and with mpirun if these name none. `arguments` are the
  // run's.
  Subprocess Start(const std::vector<std::string>& flags,
                   const std::vector<std::string>& arguments = {}) const;

  // As Start, from a shell that has run `commands`: "trap '' HUP".
  Subprocess StartFromShell(const std::string& commands, const std::vector<std::string>& flags,
                            const std::vector<std::string>& arguments = {}) const;

  // The path of a program that it makes.
  std::string Script(const std::string& name, const std::string& text) const;
  // A launcher that outlives its ranks, as mpirun that waits for a host which it cannot reach.
  std::string WaitingLauncher() const;

  // Steps in losses.csv.
  int64_t Steps() const;

  // Fail the test where what they wait for does not come.
  void AwaitSteps(int64_t steps) const;
  // So many restarts, and the next step behind the last one. Until then losses.csv has the rows of
  // the ranks before.
  void AwaitRestarts(int64_t restarts) const;
  static void AwaitFile(const std::string& path);
  static void AwaitText(const std::string& path, const std::string& text);
  void AwaitNoProcess() const;

  // Sends a signal to one of the run's processes of a kind.
  void Kill(LaunchedProcess::Kind kind, int number = SIGKILL) const;

  // That the run has the bits of `single`, and that no process or file of it is left over.
  void ExpectTheRunOfSingle(const ProcessResult& result) const;

 private:
  // The launcher's command line.
  std::vector<std::string> Words(const std::vector<std::string>& flags,
                                 const std::vector<std::string>& arguments) const;
};

}  // namespace lockstep
