// Allocations of a step fail, one in each try, under every strategy: the run ends with one message
// that says so, whatever thread wanted the memory. Nothing crashes, and nobody waits for ever.

#include "strategies/testing/failing_allocations.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "core/base/file.h"
#include "core/base/parallel.h"
#include "core/base/program.h"
#include "core/base/status.h"
#include "core/comm/launch.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/run/batches.h"
#include "core/run/training_run.h"
#include "core/tensor/allocator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/presets.h"

namespace lockstep {
namespace {

constexpr char kWorkload[] = R"([train]
steps = 3
clip_norm = 1.0
[batch]
size = 8
[cut]
shards = 4
features = 2
[model]
kind = "transformer"
layers = 2
heads = 2
width = 16
dropout = 0.1
[data]
kind = "markov"
vocabulary = 8
order = 1
successors = 2
context = 8
[optimizer]
kind = "adamw"
[schedule]
learning_rate = 0.01
[run]
threads = 1
timeout_seconds = 5
)";

// Tries of each strategy, spread over the allocations of its step; the first ones all. With 2,000
// and 0, all of the first 2,000 fail in turn, which takes a quarter of a minute for each strategy.
constexpr int64_t kFirst = 20, kSpread = 40;

struct Shared {
  int64_t count;       // of allocations
  char message[4096];  // of the error
};

// Two steps on all ranks; in the second, allocation `at` fails.
absl::Status TwoSteps(const TrainingRun& run, int64_t at, Shared& shared) {
  return RunRanks(run.settings.mesh.ranks(), {.timeout = absl::Seconds(5)},
                  [&](RankHandle& handle) -> absl::Status {
                    SetThreads(1);
                    CpuAllocator allocator;
                    CpuKernels kernels(allocator, run.settings.instructions);
                    LS_ASSIGN_OR_RETURN(Mesh mesh, Mesh::Create(run.settings.mesh, handle.comm()));
                    Trace trace(handle.rank(), TraceWindow{});
                    StepTimer timer({.exposed_nanos = [&handle] {
                      return handle.ledger().Mark().All().exposed_nanos;
                    }});
                    Rank rank(kernels, mesh, timer, trace);
                    LS_ASSIGN_OR_RETURN(Model model, run.make_model(run.config, *run.dataset));
                    const auto strategy = MakeStrategy(run, rank, std::move(model), {});
                    PrefetchedBatches batches(run, rank, 0, strategy->micro_batches());
                    strategy->TrainStep(0, batches);
                    LS_RETURN_IF_ERROR(handle.comm().Barrier("armed").Wait());
                    if (handle.rank() == 0) FailAllocation(at, &shared.count);
                    strategy->TrainStep(1, batches);
                    return handle.comm().Barrier("over").Wait();
                  });
}

class FailingAllocationsTest : public testing::TestWithParam<size_t> {
 protected:
  FailingAllocationsTest() {
    void* memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    shared_ = new (memory) Shared();
  }
  ~FailingAllocationsTest() override { munmap(shared_, sizeof(Shared)); }

  // How a process of its own ends in which allocation `at` of the second step fails: "" if well.
  std::string Try(const TrainingRun& run, int64_t at) {
    *shared_ = {};
    const pid_t child = fork();
    if (child == 0) {
      alarm(30);  // nobody waits for ever
      absl::Status status;
      try {
        status = TwoSteps(run, at, *shared_);
      } catch (const std::exception&) {  // as the program's main does
        status = StatusOfException();
      }
      FailAllocation(0, nullptr);
      status.message().copy(shared_->message, sizeof(shared_->message) - 1);
      _exit(status.ok() ? 0 : 1);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) return absl::StrCat("signal ", WTERMSIG(status));
    const std::string message = shared_->message;
    if (WEXITSTATUS(status) == 0) return "";
    if (message.find("memory") == std::string::npos ||
        std::count(message.begin(), message.end(), '\n') > 0) {
      return "the message: " + message;
    }
    return "";
  }

  Shared* shared_;
};

TEST_P(FailingAllocationsTest, EndInOneMessage) {
  const StrategyDefinition strategy = AllStrategies()[GetParam()];
  const std::string folder = testing::TempDir() + "/failing_allocations";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  CommandLine command_line;
  command_line.configs = {folder + "/workload.toml"};
  std::string workload = kWorkload;
  if (strategy.name == "ep") {
    absl::StrReplaceAll({{"kind = \"transformer\"", "kind = \"llama\"\nexperts = {count = 2}"},
                         {"dropout = 0.1\n", ""}},
                        &workload);
  }
  ASSERT_TRUE(WriteFileAtomically(command_line.configs[0], workload).ok());
  command_line.out = folder + "/out";
  if (strategy.name == "fsdp") command_line.assignments = {"mesh.dp=4"};
  if (strategy.name == "lora") command_line.assignments = {"lora.layers=[\"*\"]"};
  const auto run = PrepareRun(command_line, strategy, MakeModel);
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_EQ(Try(*run, 0), "");
  const int64_t count = shared_->count;
  ASSERT_GT(count, kFirst) << "nothing was counted";
  std::vector<int64_t> failing;
  for (int64_t at = 1; at <= kFirst; ++at) failing.push_back(at);
  for (int64_t i = 1; i <= kSpread; ++i) failing.push_back(kFirst + (count - kFirst) * i / kSpread);
  std::vector<std::string> problems;
  for (const int64_t at : failing) {
    const std::string problem = Try(*run, at);
    if (!problem.empty()) problems.push_back(absl::StrCat(at, " of ", count, ": ", problem));
  }
  EXPECT_THAT(problems, testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Strategies, FailingAllocationsTest,
                         testing::Range(size_t{0}, AllStrategies().size()),
                         [](const auto& of) { return AllStrategies()[of.param].name; });

}  // namespace
}  // namespace lockstep
