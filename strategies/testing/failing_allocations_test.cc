// Allocations of a step fail, one in each try, under every strategy: the run ends with one message
// that says so, whatever thread wanted the memory. Nothing crashes, and nobody waits for ever.

#include "strategies/testing/failing_allocations.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "core/base/file.h"
#include "core/base/parallel.h"
#include "core/base/program.h"
#include "core/base/status.h"
#include "core/comm/launch.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/report/summary.h"
#include "core/run/leg/batches.h"
#include "core/run/leg/training_run.h"
#include "core/run/trainer.h"
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

// Allocations of a strategy's step that fail in turn, from the first on; and the number of those
// behind them that do, spread evenly. From a start on, and in a whole run with its files and
// threads, only the latter.
constexpr int64_t kFirst = 2000, kSpread = 40, kSpreadOfRun = 40, kSpreadOfStart = 300;

struct Shared {
  int64_t count;  // of allocations
};

// What all ranks do while allocation `at` of them fails: they make the strategy, or they train the
// second of two steps.
enum class Part { kStart, kSecondStep };
absl::Status Work(const TrainingRun& run, Part part, int64_t at, Shared& shared) {
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
                    const auto arm = [&]() -> absl::Status {
                      LS_RETURN_IF_ERROR(handle.comm().Barrier("armed").Wait());
                      if (handle.rank() == 0) FailAllocation(at, &shared.count);
                      return absl::OkStatus();
                    };
                    if (part == Part::kStart) LS_RETURN_IF_ERROR(arm());
                    LS_ASSIGN_OR_RETURN(Model model, run.make_model(run.config, *run.dataset));
                    const auto strategy = MakeStrategy(run, rank, std::move(model), {});
                    if (part == Part::kStart) return handle.comm().Barrier("over").Wait();
                    PrefetchedBatches batches(run, rank, 0, 2, strategy->micro_batches());
                    strategy->TrainStep(0, batches);
                    LS_RETURN_IF_ERROR(arm());
                    strategy->TrainStep(1, batches);
                    return handle.comm().Barrier("over").Wait();
                  });
}

// A whole run, which writes checkpoints beside its steps, and its summary.
absl::Status WholeRun(const CommandLine& command_line, const StrategyDefinition& strategy,
                      int64_t at, Shared& shared) {
  std::filesystem::remove_all(command_line.out);
  LS_ASSIGN_OR_RETURN(const TrainingRun run, PrepareRun(command_line, strategy, MakeModel));
  FailAllocation(at, &shared.count);
  LS_ASSIGN_OR_RETURN(const std::vector<RankReport> reports, TrainRanks(run));
  return WriteRunSummary(run, reports);
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

  // How a process of its own ends that runs `body`, in which allocation `at` fails: "" if well.
  std::string Try(const std::function<absl::Status(int64_t at, Shared&)>& body, int64_t at) {
    *shared_ = {};
    const std::string err = testing::TempDir() + "/err";
    const pid_t child = fork();
    if (child == 0) {
      alarm(30);  // nobody waits for ever
      dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
      dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), STDERR_FILENO);
      _exit(ExitCodeOf([&]() -> absl::StatusOr<int> {
        const absl::Status status = body(at, *shared_);
        FailAllocation(0, nullptr);
        LS_RETURN_IF_ERROR(status);
        return 0;
      }));
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) return absl::StrCat("signal ", WTERMSIG(status));
    if (WEXITSTATUS(status) == 0) return "";
    // Warnings, such as of what could not be predicted, are no messages.
    std::vector<std::string> lines = absl::StrSplit(*ReadFile(err), '\n', absl::SkipEmpty());
    std::erase_if(lines, [](const std::string& line) { return line.starts_with("W2"); });
    const bool is_told = lines.size() == 1 && absl::StrContains(lines[0], "memory");
    return WEXITSTATUS(status) == 1 && is_told ? "" : "the message: " + absl::StrJoin(lines, "\n");
  }

  // Lets the first allocations of `body` fail in turn, and others behind them.
  void FailInTurn(const std::function<absl::Status(int64_t at, Shared&)>& body, int64_t first,
                  int64_t spread) {
    ASSERT_EQ(Try(body, 0), "");
    const int64_t count = shared_->count;
    ASSERT_GT(count, spread) << "nothing was counted";
    std::vector<int64_t> failing;
    for (int64_t at = 1; at <= std::min(first, count); ++at) failing.push_back(at);
    for (int64_t i = 1; i <= spread && count > first; ++i) {
      failing.push_back(first + (count - first) * i / spread);
    }
    std::vector<std::string> problems;
    for (const int64_t at : failing) {
      const std::string problem = Try(body, at);
      if (!problem.empty()) problems.push_back(absl::StrCat(at, " of ", count, ": ", problem));
    }
    EXPECT_THAT(problems, testing::IsEmpty());
  }

  // A command line of the strategy, with the workload's file in a folder of its own.
  static CommandLine CommandLineOf(const StrategyDefinition& strategy) {
    const std::string folder = testing::TempDir() + "/failing_allocations";
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    CommandLine command_line;
    command_line.configs = {folder + "/workload.toml"};
    command_line.out = folder + "/out";
    std::string workload = kWorkload;
    if (strategy.name == "ep") {
      absl::StrReplaceAll({{"kind = \"transformer\"", "kind = \"llama\"\nexperts = {count = 2}"},
                           {"dropout = 0.1\n", ""}},
                          &workload);
    }
    EXPECT_TRUE(WriteFileAtomically(command_line.configs[0], workload).ok());
    if (strategy.name == "fsdp") command_line.assignments = {"mesh.dp=4"};
    if (strategy.name == "lora") command_line.assignments = {"lora.layers=[\"*\"]"};
    // The engine by itself: stages, replicas, and blocks that backward computes once more.
    if (strategy.name == "mesh") {
      command_line.assignments = {"mesh={pp=2, dp=2}", "recompute.blocks=[\"*\"]"};
    }
    return command_line;
  }

  Shared* shared_;
};

TEST_P(FailingAllocationsTest, OfAStepEndInOneMessage) {
  const StrategyDefinition strategy = AllStrategies()[GetParam()];
  const auto run = PrepareRun(CommandLineOf(strategy), strategy, MakeModel);
  ASSERT_TRUE(run.ok()) << run.status();
  FailInTurn([&](int64_t at, Shared& shared) { return Work(*run, Part::kSecondStep, at, shared); },
             kFirst, kSpread);
}

TEST_P(FailingAllocationsTest, OfAStartEndInOneMessage) {
  const StrategyDefinition strategy = AllStrategies()[GetParam()];
  const auto run = PrepareRun(CommandLineOf(strategy), strategy, MakeModel);
  ASSERT_TRUE(run.ok()) << run.status();
  FailInTurn([&](int64_t at, Shared& shared) { return Work(*run, Part::kStart, at, shared); },
             /*first=*/0, kSpreadOfStart);
}

TEST_P(FailingAllocationsTest, OfARunEndInOneMessage) {
  const StrategyDefinition strategy = AllStrategies()[GetParam()];
  CommandLine command_line = CommandLineOf(strategy);
  command_line.assignments.push_back("checkpoint.every=1");
  FailInTurn(
      [&](int64_t at, Shared& shared) { return WholeRun(command_line, strategy, at, shared); },
      /*first=*/0, kSpreadOfRun);
}

INSTANTIATE_TEST_SUITE_P(Strategies, FailingAllocationsTest,
                         testing::Range(size_t{0}, AllStrategies().size()),
                         [](const auto& of) { return AllStrategies()[of.param].name; });

}  // namespace
}  // namespace lockstep
