#pragma once

#include <string>
#include <vector>

#include "core/base/subprocess.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace lockstep {

// A workload of a small GPT with dropout and AdamW, one thread a rank, 12 samples a step: TOML
// text, to which `tables` adds what a test is about.
std::string LaunchedGpt(int layers, const std::string& tables);

// The same with a small Llama of two layers and four experts, all of which each token chooses, so
// that loads are even.
std::string LaunchedExperts(const std::string& tables);

// A strategy's program run as a user would, ranks as threads or as processes under mpirun, in a
// folder of the test's own. The program and build_defs/mpi_test.sh must be among the test's data.
class LaunchedRunTest : public testing::Test {
 protected:
  // `program` from the root of the repository; `workload`: TOML text.
  LaunchedRunTest(std::string program, const std::string& workload);

  // Runs the program, under mpirun if `launcher` says how; its files go to path(out).
  ProcessResult Run(const std::vector<std::string>& launcher, const std::string& out,
                    const std::vector<std::string>& more = {});
  // As Run, of another program.
  ProcessResult RunProgram(const std::string& program, const std::vector<std::string>& launcher,
                           const std::string& out, const std::vector<std::string>& more = {});
  static std::vector<std::string> MpiRun(int ranks);

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  // A file that a run left, and one run's summary.json; throws if there is none.
  std::string File(const std::string& name) const;
  nlohmann::json Summary(const std::string& out) const;

 private:
  const std::string program_, folder_;
};

}  // namespace lockstep
