#pragma once

#include <string>
#include <vector>

#include "tools/experiment/run_record.h"

namespace lockstep {

// A run to be made: `program` trains, its configuration included.
struct PlannedRun {
  std::string name;  // "gpt_markov/ddp": what messages call it, and its directory under `out`
  std::string program;
  std::vector<std::string> arguments = {};  // behind those of RunAllOptions
  std::string workload = {};                // of a run that ends before it has told its own
};

struct RunAllOptions {
  std::vector<PlannedRun> runs;
  std::string out;                     // directory that gets theirs
  std::vector<std::string> arguments;  // for each program, behind those of its own
};

// What became of the runs.
struct RunAllResult {
  std::vector<RunRecord> records;  // one a run, those that failed or were not reached included
  bool interrupted = false;        // by Ctrl-C: the runs after it were not started
};

// Makes the runs one after another. Says on the standard error stream which one is on and
// about how long all will still take; the programs show their own steps and messages there.
RunAllResult RunAll(const RunAllOptions& options);

}  // namespace lockstep
