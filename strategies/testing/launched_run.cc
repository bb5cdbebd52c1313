#include "strategies/testing/launched_run.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"

namespace lockstep {

namespace {

std::string Launched(const std::string& model, const std::string& tables) {
  return absl::StrCat(R"(name = "launched"
[batch]
size = 12
[data]
kind = "markov"
context = 16
validation_samples = 24
[optimizer]
kind = "adamw"
[schedule]
learning_rate = 0.01
[run]
threads = 1
)",
                      model, tables);
}

}  // namespace

std::string LaunchedGpt(int layers, const std::string& tables) {
  return Launched(absl::StrCat(R"([model]
kind = "transformer"
heads = 2
width = 32
dropout = 0.1
layers = )",
                               layers, "\n"),
                  tables);
}

std::string LaunchedExperts(const std::string& tables) {
  return Launched(R"([model]
kind = "llama"
layers = 2
heads = 2
width = 32
mlp_width = 48
experts = {count = 4, top_k = 4}
)",
                  tables);
}

LaunchedRunTest::LaunchedRunTest(std::string program, const std::string& workload)
    : program_(std::move(program)), folder_(testing::TempDir() + "/launched_run") {
  std::filesystem::remove_all(folder_);
  std::filesystem::create_directories(folder_);
  const absl::Status written = WriteFileAtomically(path("workload.toml"), workload);
  EXPECT_TRUE(written.ok()) << written;
}

ProcessResult LaunchedRunTest::Run(const std::vector<std::string>& launcher, const std::string& out,
                                   const std::vector<std::string>& more) {
  return RunProgram(program_, launcher, out, more);
}

ProcessResult LaunchedRunTest::RunProgram(const std::string& program,
                                          const std::vector<std::string>& launcher,
                                          const std::string& out,
                                          const std::vector<std::string>& more) {
  std::vector<std::string> arguments = launcher;
  arguments.insert(arguments.end(),
                   {program, "--config", path("workload.toml"), "--out", path(out)});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunProcess({.arguments = arguments}).value();
}

std::vector<std::string> LaunchedRunTest::MpiRun(int ranks) {
  return {"build_defs/mpi_test.sh", absl::StrCat(ranks)};
}

std::string LaunchedRunTest::File(const std::string& name) const {
  return ReadFile(path(name)).value();
}

nlohmann::json LaunchedRunTest::Summary(const std::string& out) const {
  return nlohmann::json::parse(File(out + "/summary.json"));
}

}  // namespace lockstep
