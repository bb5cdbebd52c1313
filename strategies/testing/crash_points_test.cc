// Each call that changes a file of a run fails in turn: the process is killed there, or the call
// reports a full disk or an error of the device. Whatever was left, going on as a user would ends
// with the losses and the summary of the undisturbed run, and without any other file but those that
// keep the rows of the attempts before.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/checkpoint/in_memory.h"
#include "core/checkpoint/safetensors.h"
#include "core/run/main.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "nlohmann/json.hpp"
#include "strategies/fsdp/fsdp.h"
#include "strategies/single/single.h"
#include "strategies/testing/failing_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr char kWorkload[] = R"(name = "crash_points"
[train]
steps = 3
[batch]
size = 2
[model]
kind = "transformer"
layers = 1
heads = 1
width = 8
[data]
kind = "markov"
vocabulary = 4
order = 1
successors = 2
context = 4
validation_samples = 2
[optimizer]
kind = "sgd"
[schedule]
learning_rate = 0.01
total_steps = 3
[run]
threads = 1
[trace]
first_step = 1
steps = 1
[checkpoint]
every = 1
keep = 1
)";

// A row behind the checkpoint of the run that is resumed, with a loss that no run has.
constexpr char kLostRow[] = "1,12345\n";

using Arguments = std::vector<std::string>;

// So that the best checkpoint is replaced in each of the first steps: the loss falls.
const Arguments kKeepBest = {"--set", "checkpoint.best=true", "--set", "validation.every=1"};

// What a run has left: losses, what its summary says of them, the tensors of the best checkpoint,
// and the names of all files.
struct Outcome {
  std::string losses;
  std::string parameter_hash;
  nlohmann::json validation_loss;
  std::map<std::string, std::string> best;  // bytes by file and tensor
  std::set<std::string> files;

  bool operator==(const Outcome&) const = default;
};

// Whether a path is of what a run keeps of its earlier attempts, which no other attempt reads.
bool IsOfEarlierAttempt(const std::string& path) {
  return absl::StrContains(path, "out/earlier") && !absl::StrContains(path, ".tmp");
}

// What could not be removed is named so first.
bool IsDeleted(const std::string& path) { return absl::StrContains(path, ".tmp-deleted"); }

// Adds the tensors of a file of a checkpoint. Its metadata says which files were saved together,
// which is another number each time.
void ReadTensors(const std::string& path, const std::string& name,
                 std::map<std::string, std::string>& tensors) {
  const auto reader = SafetensorsReader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  for (const SafetensorsTensor& tensor : reader->tensors()) {
    std::string bytes(static_cast<size_t>(tensor.bytes), '\0');
    ASSERT_EQ(reader->Read(tensor, std::as_writable_bytes(std::span(bytes))), absl::OkStatus());
    tensors[absl::StrCat(name, " ", tensor.name)] = bytes;
  }
}

class CrashPointsTest : public testing::TestWithParam<const char*> {
 protected:
  CrashPointsTest() : folder_(fs::weakly_canonical(testing::TempDir()).string() + "/crash_points") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    EXPECT_TRUE(WriteFileAtomically(folder_ + "/workload.toml", kWorkload).ok());
    void* shared =
        mmap(nullptr, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(shared, MAP_FAILED);
    calls_ = static_cast<int64_t*>(shared);
  }
  ~CrashPointsTest() override { munmap(calls_, sizeof(int64_t)); }

  std::string out() const { return folder_ + "/out"; }
  StrategyDefinition Strategy() const {
    return std::string(GetParam()) == "single" ? SingleStrategy() : FsdpStrategy();
  }

  // The exit code of the program in a process of its own, 128 + the signal where one ended it; what
  // it writes to the standard error stream goes to the file "err".
  int Run(const Arguments& more, FileFault fault = FileFault::kNone, int64_t at = 0) {
    Arguments arguments = {"main",
                           "--config",
                           folder_ + "/workload.toml",
                           "--out",
                           out(),
                           "--set",
                           std::string(GetParam()) == "single" ? "mesh.dp=1" : "mesh.dp=2",
                           "--set",
                           "cut.shards=2"};
    arguments.insert(arguments.end(), settings_.begin(), settings_.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    *calls_ = 0;
    const pid_t child = fork();
    if (child == 0) {
      std::vector<char*> argv;
      for (std::string& argument : arguments) argv.push_back(argument.data());
      dup2(open((folder_ + "/err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), STDERR_FILENO);
      dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
      FailFileCall(out(), fault, at, calls_);
      _exit(TrainMain(static_cast<int>(argv.size()), argv.data(), Strategy(), MakeModel,
                      [](const FinishedRun&) { return TimePrediction{.missing = "a test"}; }));
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  std::string Message() const { return ReadFile(folder_ + "/err").value_or(""); }

  Outcome Look() const {
    Outcome outcome = {.losses = ReadFile(out() + "/losses.csv").value_or("none"),
                       .parameter_hash = "none",
                       .validation_loss = {},
                       .best = {},
                       .files = {}};
    const auto summary = nlohmann::json::parse(ReadFile(out() + "/summary.json").value_or(""),
                                               nullptr, /*allow_exceptions=*/false);
    if (summary.is_object()) {
      outcome.parameter_hash = summary.value("parameter_hash", "none");
      outcome.validation_loss = summary.value("validation_loss", nlohmann::json());
    }
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      const std::string path = entry.path().string();
      if (absl::StrContains(path, "/out/best/") && path.ends_with(".safetensors") &&
          entry.is_regular_file() && !IsDeleted(path)) {
        ReadTensors(path, fs::relative(path, out()).string(), outcome.best);
      }
      if (IsOfEarlierAttempt(path)) continue;
      if (path.ends_with("/resumed.json")) continue;  // which a run has that went on
      outcome.files.insert(fs::relative(entry.path(), folder_).string());
    }
    return outcome;
  }

  // Whether the losses that `start` wrote behind the newest checkpoint are where the run has them.
  bool HasLostRow() const {
    if (absl::StrContains(ReadFile(out() + "/losses.csv").value_or(""), kLostRow)) return true;
    const std::string earlier = out() + "/earlier";
    for (const auto& name : ListFolder(earlier).value_or(std::vector<std::string>())) {
      const std::string path = absl::StrCat(earlier, "/", name, "/losses.csv");
      if (!absl::StrContains(path, ".tmp") &&
          absl::StrContains(ReadFile(path).value_or(""), kLostRow)) {
        return true;
      }
    }
    return false;
  }

  // Goes on as a user would: from a checkpoint if there is one, or else anew, in which case the
  // attempt before, which was set aside, is no longer needed.
  void GoOn() {
    if (fs::exists(out() + "/summary.json")) return;
    const std::string losses = ReadFile(out() + "/losses.csv").value_or("");
    const bool has_copy = copies_each_step_ && std::ranges::count(losses, '\n') > 2;
    if (Run({"--resume"}) == 0) return;
    EXPECT_FALSE(has_copy) << Message();
    EXPECT_THAT(Message(), testing::HasSubstr("holds no checkpoint to go on from"));
    EXPECT_EQ(Run({}), 0) << Message();
    fs::remove_all(out() + ".1");
  }

  // Runs `arguments` from what `start` makes of the folder, with each call failing in turn.
  void FailEachCall(const Arguments& arguments, const std::function<void()>& start) {
    start();
    ASSERT_EQ(Run(arguments), 0) << Message();
    const int64_t calls = *calls_;
    ASSERT_GT(calls, 20);
    const Outcome undisturbed = Look();
    ASSERT_NE(undisturbed.parameter_hash, "none");
    for (int64_t at = 1; at <= calls; ++at) {
      for (const FileFault fault : {FileFault::kKill, FileFault::kNoSpace, FileFault::kIoError}) {
        start();
        const bool has_best = !Look().best.empty();
        const bool has_lost_row = HasLostRow();
        const int code = Run(arguments, fault, at);
        SCOPED_TRACE(absl::StrCat("call ", at, " of ", calls, ", fault ", static_cast<int>(fault),
                                  ", exit code ", code, ": ", Message()));
        if (fault == FileFault::kKill) {
          EXPECT_EQ(code, 128 + SIGKILL);
        } else if (code != 0) {
          EXPECT_EQ(code, 1);
          EXPECT_TRUE(absl::StrContains(Message(), "No space left on device") ||
                      absl::StrContains(Message(), "Input/output error"))
              << Message();
        }
        if (has_best) {
          EXPECT_FALSE(Look().best.empty()) << "the best checkpoint before is gone, and no new one";
        }
        EXPECT_EQ(HasLostRow(), has_lost_row) << "the run has lost losses of an earlier attempt";
        GoOn();
        EXPECT_EQ(HasLostRow(), has_lost_row) << "the run has lost losses of an earlier attempt";
        Outcome outcome = Look();
        // What the system refuses to remove stays, under a name that nobody reads and that whoever
        // saves the next checkpoint removes.
        if (code == 0) {
          std::erase_if(outcome.files, IsDeleted);
        }
        EXPECT_EQ(outcome.losses, undisturbed.losses);
        EXPECT_EQ(outcome.parameter_hash, undisturbed.parameter_hash);
        EXPECT_EQ(outcome.validation_loss, undisturbed.validation_loss);
        EXPECT_EQ(outcome.files, undisturbed.files);
        EXPECT_TRUE(outcome.best == undisturbed.best) << "the best checkpoint has other tensors";
        if (HasFailure()) return;
      }
    }
  }

  void FailEachCallOfARun() {
    FailEachCall({}, [this] { fs::remove_all(out()); });
  }

  void FailEachCallOfAResumedRun() {
    fs::remove_all(out());
    ASSERT_EQ(Run({"--set", "train.steps=1"}), 0) << Message();
    fs::rename(out(), folder_ + "/stopped");
    FailEachCall({"--resume"}, [this] {
      fs::remove_all(out());
      fs::copy(folder_ + "/stopped", out(), fs::copy_options::recursive);
      fs::remove(out() + "/summary.json");
      // As if the attempt before had been killed after its next step.
      std::ofstream(out() + "/losses.csv", std::ios::app) << kLostRow;
    });
  }

  // Both must have kept a checkpoint, or nothing was tried of how it is kept.
  void ExpectABestCheckpoint() const { EXPECT_THAT(Look().best, testing::Not(testing::IsEmpty())); }

  const std::string folder_;
  Arguments settings_;             // of all runs
  bool copies_each_step_ = false;  // in memory: a row has the copy of the step before
  int64_t* calls_;
};

TEST_P(CrashPointsTest, OfARun) { FailEachCallOfARun(); }

TEST_P(CrashPointsTest, OfAResumedRun) { FailEachCallOfAResumedRun(); }

TEST_P(CrashPointsTest, OfARunThatKeepsItsBest) {
  settings_ = kKeepBest;
  FailEachCallOfARun();
  ExpectABestCheckpoint();
}

TEST_P(CrashPointsTest, OfAResumedRunThatKeepsItsBest) {
  settings_ = kKeepBest;
  FailEachCallOfAResumedRun();
  ExpectABestCheckpoint();
}

TEST_P(CrashPointsTest, OfARunWhoseStateIsInMemoryAlone) {
  settings_ = {"--set", "checkpoint.keep=0", "--set", "checkpoint.in_memory_every=1"};
  copies_each_step_ = true;
  FailEachCallOfARun();
  EXPECT_FALSE(PathExists(InMemoryFolder(out())));
}

INSTANTIATE_TEST_SUITE_P(Strategies, CrashPointsTest, testing::Values("single", "fsdp"),
                         [](const auto& of) { return of.param; });

}  // namespace
}  // namespace lockstep
