// Whether foresight is quick and right:
//
//   plans      how long plans take
//   published  steps that others have measured, and puzzles with known answers
//   runs       runs of models that were not calibrated, under most presets, on this machine
//   network    runs on two hosts that a slow network joins, beside PyTorch's; needs root
//
//   ./bazelw run //tools/plan:calibrate
//   ./bazelw run //tools/bench:foresight
//   ./bazelw run //tools/bench:foresight -- --tables network --python /path/to/python

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "core/base/flags.h"
#include "core/base/nearest.h"
#include "core/base/status.h"
#include "tools/bench/foresight/machine_runs.h"
#include "tools/bench/foresight/network_runs.h"
#include "tools/bench/foresight/planning_speed.h"
#include "tools/bench/foresight/published_steps.h"
#include "tools/bench/torch_peer.h"
#include "tools/report/text.h"

ABSL_FLAG(std::vector<std::string>, tables, {}, "of plans, published, runs, network; default: all");
ABSL_FLAG(int, steps, 24, "of each run on this machine; half as many over a network");
ABSL_FLAG(int, rounds, 3, "of all runs");
ABSL_FLAG(std::string, plan, "tools/plan/plan", "the planner's program");
ABSL_FLAG(std::string, strategies, "strategies", "folder with the presets' programs");
ABSL_FLAG(std::string, two_hosts, "tools/bench/foresight/two_hosts.sh", "makes the two hosts");
ABSL_FLAG(std::string, python, "python3", "an interpreter with PyTorch, to compare with");
ABSL_FLAG(std::string, peers, "tools/bench", "folder with PyTorch's scripts");

namespace lockstep {
namespace {

absl::Status Show(const absl::StatusOr<Table>& table) {
  LS_RETURN_IF_ERROR(table.status());
  std::printf("\n%s\n%s", table->title.c_str(), TextOf(*table).c_str());
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status ShowPublished() {
  LS_ASSIGN_OR_RETURN(const std::vector<Table> errors, PublishedErrors());
  for (const Table& table : errors) LS_RETURN_IF_ERROR(Show(table));
  LS_RETURN_IF_ERROR(Show(PublishedMemoryErrors()));
  return Show(Puzzles());
}

absl::Status ShowRuns() {
  return Show(MachineRuns({.strategies = absl::GetFlag(FLAGS_strategies),
                           .steps = absl::GetFlag(FLAGS_steps),
                           .count = absl::GetFlag(FLAGS_rounds)}));
}

absl::Status ShowNetwork() {
  const std::string peers = absl::GetFlag(FLAGS_peers);
  const auto peer = FindTorchPeer(absl::GetFlag(FLAGS_python), peers + "/torch_data_parallel.py");
  return Show(NetworkRuns({.strategies = absl::GetFlag(FLAGS_strategies),
                           .script = absl::GetFlag(FLAGS_two_hosts),
                           .python = peer ? peer->python : "",
                           .peers = peers,
                           .steps = absl::GetFlag(FLAGS_steps) / 2,
                           .count = absl::GetFlag(FLAGS_rounds)}));
}

absl::StatusOr<int> RunBenchmark() {
  const std::vector<std::pair<std::string, std::function<absl::Status()>>> tables = {
      {"plans", [] { return Show(PlanningSpeed(absl::GetFlag(FLAGS_plan))); }},
      {"published", ShowPublished},
      {"runs", ShowRuns},
      {"network", ShowNetwork}};
  const std::vector<std::string> wanted = absl::GetFlag(FLAGS_tables);
  for (const std::string& name : wanted) {
    LS_RETURN_IF_ERROR(
        FindNamed("table", name, tables, [](const auto& table) { return table.first; }).status());
  }
  for (const auto& [name, show] : tables) {
    if (wanted.empty() || std::ranges::count(wanted, name) > 0) LS_RETURN_IF_ERROR(show());
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "How long plans take, and predicted times of steps beside measured ones; see "
                "docs/planning.md.",
       .files = {__FILE__}},
      [](const auto&) { return lockstep::RunBenchmark(); });
}
