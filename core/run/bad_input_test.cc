// What a user can get wrong, through the whole program: exit code 1, one message that says what and
// where, and nothing lost. Runs the binaries of strategies as a shell would.

#include <sys/stat.h>  // mkfifo

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/base/file.h"
#include "core/base/subprocess.h"
#include "core/run/run_signals.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kSingle[] = "strategies/single/main";
constexpr char kDdp[] = "strategies/ddp/main";

// A run that takes a second or two.
constexpr char kWorkload[] = R"(name = "bad_input"
[train]
steps = 6
[batch]
size = 8
[model]
kind = "transformer"
layers = 1
heads = 2
width = 16
[data]
kind = "markov"
context = 16
validation_samples = 8
[optimizer]
kind = "adamw"
[schedule]
learning_rate = 0.01
total_steps = 6
[run]
threads = 1
[checkpoint]
every = 2
)";

// The line of `text` that holds `word`; empty where there is none.
std::string Line(const std::string& text, const std::string& word) {
  const size_t at = text.find(word);
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

class BadInputTest : public ::testing::Test {
 protected:
  BadInputTest() : folder_(::testing::TempDir() + "/bad_input") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    Write("workload.toml", kWorkload);
  }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  void Write(const std::string& name, const std::string& contents) {
    fs::create_directories(fs::path(Path(name)).parent_path());
    std::ofstream(Path(name), std::ios::binary) << contents;
  }

  ProcessOptions Options(const std::string& binary, const std::vector<std::string>& more) {
    ProcessOptions options;
    options.arguments = {binary, "--config", Path("workload.toml"), "--out", Path("out")};
    options.arguments.insert(options.arguments.end(), more.begin(), more.end());
    // Nor is there a GPU, wherever this runs.
    options.environment = {{"LOCKSTEP_DATA", ""}, {"CUDA_VISIBLE_DEVICES", "-1"}};
    return options;
  }

  ProcessResult Start(const std::string& binary, const std::vector<std::string>& more) {
    auto result = RunProcess(Options(binary, more));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : ProcessResult{};
  }

  // The message of a run that must fail.
  std::string Fail(const std::string& binary, const std::vector<std::string>& more) {
    const ProcessResult result = Start(binary, more);
    EXPECT_EQ(result.exit_code, 1) << result.Describe() << "\n" << result.err;
    EXPECT_EQ(result.out, "");
    return result.err;
  }

  // Every file below a folder of the test, with its bytes.
  std::map<std::string, std::string> Snapshot(const std::string& name) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(Path(name))) {
      if (entry.is_regular_file()) files[entry.path().string()] = *ReadFile(entry.path().string());
    }
    return files;
  }

  std::string folder_;
};

TEST_F(BadInputTest, ARightRunSucceeds) {
  const ProcessResult result = Start(kSingle, {});
  EXPECT_TRUE(result.ok()) << result.err;
  // No terminal, so no progress line, and too short for lines in a log.
  EXPECT_THAT(result.err, AllOf(StartsWith("bad_input under single: 1 rank on the CPU"),
                                EndsWith("bad_input/out\n"), Not(HasSubstr("step 1/"))));
  EXPECT_THAT(result.out, HasSubstr("bad_input  single"));
}

TEST_F(BadInputTest, CommandLine) {
  EXPECT_THAT(Fail(kSingle, {"--resum"}), HasSubstr("did you mean --resume?"));
  EXPECT_THAT(Fail(kSingle, {"--set"}), HasSubstr("--set needs a value"));
  EXPECT_THAT(Fail(kSingle, {"--device", "gpu"}), HasSubstr("use cpu or cuda"));
  // Whether it was built without CUDA, or there is no driver or no GPU.
  EXPECT_THAT(Fail(kDdp, {"--device", "cuda", "--set", "mesh.dp=2"}),
              AllOf(HasSubstr("--device cuda: "), HasSubstr("use --device cpu")));
  EXPECT_THAT(Fail(kSingle, {"--config", Path("none.toml")}), HasSubstr("none.toml"));
}

// Each task would train a run of its own, all into one folder.
TEST_F(BadInputTest, TasksThatMpiCannotBringTogether) {
  ProcessOptions options = Options(kDdp, {});
  options.environment["SLURM_STEP_NUM_TASKS"] = "2";
  const auto result = RunProcess(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 1);
  EXPECT_THAT(result->err, HasSubstr("use srun --mpi=pmix"));
  EXPECT_FALSE(fs::exists(Path("out/losses.csv")));
}

TEST_F(BadInputTest, MalformedToml) {
  Write("bad.toml", "[train]\nsteps = = 3\n");
  EXPECT_THAT(Fail(kSingle, {"--config", Path("bad.toml")}), HasSubstr("bad.toml:2"));
}

TEST_F(BadInputTest, UnknownAndWronglyTypedKeys) {
  EXPECT_THAT(Fail(kSingle, {"--set", "optimizer.weight_decy=0.1"}), HasSubstr("weight_decay"));
  EXPECT_THAT(Fail(kSingle, {"--set", "optimiser.kind=sgd"}), HasSubstr("optimizer"));
  EXPECT_THAT(Fail(kSingle, {"--set", "model.depht=18"}), HasSubstr("depht"));
  EXPECT_THAT(Fail(kDdp, {"--set", "data_parallel.buckt_bytes=18"}), HasSubstr("bucket_bytes"));
  Write("typed.toml", "[train]\nsteps = \"many\"\n");
  const std::string typed = Fail(kSingle, {"--config", Path("typed.toml")});
  EXPECT_THAT(typed, HasSubstr("typed.toml:2"));
  EXPECT_THAT(typed, HasSubstr("train.steps"));
  EXPECT_THAT(Fail(kSingle, {"--set", "data.kind=markow"}), HasSubstr("markov"));
  EXPECT_THAT(Fail(kSingle, {"--set", "checkpoint.files=shraded"}), HasSubstr("sharded"));
}

TEST_F(BadInputTest, BatchesAndMeshesThatDoNotFit) {
  EXPECT_THAT(Fail(kSingle, {"--set", "cut.shards=3"}), HasSubstr("do not divide into 3 shards"));
  EXPECT_THAT(Fail(kSingle, {"--set", "mesh.dp=2"}), HasSubstr("'single' has mesh.dp = 1"));
  EXPECT_THAT(Fail(kDdp, {"--set", "mesh.pp=2"}), HasSubstr("use layerwise or gpipe"));
  EXPECT_THAT(Fail(kDdp, {"--set", "mesh.dp=512", "--set", "batch.size=512"}),
              HasSubstr("512 ranks; this machine's threads carry at most 256"));
  EXPECT_THAT(Fail(kDdp, {"--set", "mesh.dp=4", "--set", "cut.shards=2"}),
              HasSubstr("cut.shards is 2, but mesh.dp is 4"));
  EXPECT_THAT(Fail(kSingle, {"--set", "batch.shards=2"}), HasSubstr("cut.shards"));
  EXPECT_THAT(Fail(kSingle, {"--set", "model.heads=3"}), HasSubstr("3 heads"));
  EXPECT_THAT(Fail(kSingle, {"--set", "data.kind=shapes"}), HasSubstr("context"));
}

TEST_F(BadInputTest, Text) {
  const std::vector<std::string> text = {"--config", Path("text.toml"), "--data", Path("data")};
  Write("workload.toml",
        std::string(kWorkload).replace(std::string(kWorkload).find("[data]"),
                                       std::string("[data]\nkind = \"markov\"\ncontext = 16\n"
                                                   "validation_samples = 8\n")
                                           .size(),
                                       "[data]\nkind = \"text\"\npath = \"t.txt\"\ncontext = 4\n"));
  Write("text.toml", "");
  EXPECT_THAT(Fail(kSingle, {}), HasSubstr("--data DIR or LOCKSTEP_DATA"));
  EXPECT_THAT(Fail(kSingle, text), HasSubstr("does not exist"));
  fs::create_directories(Path("data"));
  EXPECT_THAT(Fail(kSingle, text), HasSubstr("t.txt"));
  Write("data/t.txt", "");
  EXPECT_THAT(Fail(kSingle, text), HasSubstr("empty"));
  Write("data/t.txt", std::string(90, 'a') + "bbbbbbbbbb");
  EXPECT_THAT(Fail(kSingle, text), HasSubstr("90"));  // where the unknown character stands
}

// 8 samples of a step, so one and a half times 20 samples are 3.75 steps.
TEST_F(BadInputTest, EpochsStandForSteps) {
  const std::vector<std::string> epochs = {"--set", "train.epochs=1.5", "--set",
                                           "data.train_samples=20"};
  EXPECT_THAT(Fail(kSingle, epochs), HasSubstr("train.epochs is given beside train.steps"));
  Write("workload.toml", absl::StrReplaceAll(kWorkload, {{"[train]\nsteps = 6\n", ""}}));
  const ProcessResult result = Start(kSingle, epochs);
  ASSERT_TRUE(result.ok()) << result.err;
  EXPECT_THAT(result.err, HasSubstr("  steps  4 of 8 samples (128 tokens)\n"));
  EXPECT_EQ(std::ranges::count(*ReadFile(Path("out/losses.csv")), '\n'), 1 + 4);
  EXPECT_THAT(Fail(kSingle, {"--set", "train.epochs=-1"}),
              HasSubstr("train.epochs is -1: it must be greater than 0"));
  EXPECT_THAT(Fail(kSingle, {"--set", "train.epochs=1e12"}), HasSubstr("it must be at least 1"));
  EXPECT_THAT(Fail(kSingle, {}), HasSubstr("train.steps is missing"));
}

TEST_F(BadInputTest, Cifar10) {
  std::string workload = kWorkload;
  const auto replace = [&workload](const std::string& from, const std::string& to) {
    workload.replace(workload.find(from), from.size(), to);
  };
  replace("kind = \"transformer\"\nlayers = 1\nheads = 2\nwidth = 16\n", "kind = \"toy\"\n");
  replace("kind = \"markov\"\ncontext = 16\nvalidation_samples = 8\n", "kind = \"cifar10\"\n");
  Write("workload.toml", workload);
  const std::vector<std::string> data = {"--data", Path("data")};
  const std::string batch = "data/cifar-10-batches-bin/data_batch_1.bin";
  const std::string test = "data/cifar-10-batches-bin/test_batch.bin";

  fs::create_directories(Path("data"));
  const std::string missing = Fail(kSingle, data);
  EXPECT_THAT(missing, HasSubstr("data_batch_1.bin"));
  EXPECT_THAT(missing, HasSubstr("toronto.edu"));
  std::string records(3073 * 10, '\1');
  Write(batch, records.substr(0, 3073 * 10 - 5));
  Write(test, records);
  const std::string truncated = Fail(kSingle, data);
  EXPECT_THAT(truncated, HasSubstr("data_batch_1.bin"));
  EXPECT_THAT(truncated, HasSubstr("30725"));
  records[3073 * 4] = 17;
  Write(batch, records);
  const std::string label = Fail(kSingle, data);
  EXPECT_THAT(label, HasSubstr("data_batch_1.bin"));
  EXPECT_THAT(label, HasSubstr("17"));
}

TEST_F(BadInputTest, RunDirectoryThatCannotBeMade) {
  Write("file", "in the way");
  ProcessOptions options = Options(kSingle, {"--out", Path("file/out")});
  const auto result = RunProcess(options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->exit_code, 1);
  EXPECT_THAT(result->err, HasSubstr("bad_input/file\""));
  EXPECT_EQ(*ReadFile(Path("file")), "in the way");
}

TEST_F(BadInputTest, AnEarlierRunIsSetAside) {
  ASSERT_TRUE(Start(kSingle, {}).ok());
  const std::string losses = *ReadFile(Path("out/losses.csv"));
  ASSERT_TRUE(Start(kSingle, {"--set", "train.seed=2"}).ok());
  EXPECT_EQ(*ReadFile(Path("out.1/losses.csv")), losses);
  EXPECT_NE(*ReadFile(Path("out/losses.csv")), losses);
}

TEST_F(BadInputTest, CorruptAndForeignCheckpointsLeaveEverythingAsItWas) {
  ASSERT_TRUE(Start(kSingle, {}).ok());
  const std::string newest = Path("out/checkpoints/step-00000006.safetensors");
  const std::string whole = *ReadFile(newest);
  // More steps to go, so that a checkpoint would be gone on with.
  const std::vector<std::string> resume = {"--resume", "--set", "train.steps=8", "--set",
                                           "checkpoint.on_damage=stop"};
  const auto with = [&resume](const std::string& assignment) {
    std::vector<std::string> arguments = resume;
    arguments.insert(arguments.end(), {"--set", assignment});
    return arguments;
  };

  auto before = Snapshot("out");
  EXPECT_THAT(Fail(kSingle, with("model.width=32")), HasSubstr("another configuration"));
  EXPECT_THAT(Fail(kSingle, with("optimizer={kind=\"sgd\",momentum=0.5}")),
              HasSubstr("optimizer.momentum"));
  EXPECT_EQ(Snapshot("out"), before);

  // Cut in the data, cut in the header, and a byte of the header changed.
  std::string changed = whole;
  changed[12] ^= 0x40;
  for (const std::string& damaged :
       {whole.substr(0, whole.size() - 4), whole.substr(0, 20), std::string(), changed}) {
    std::ofstream(newest, std::ios::binary) << damaged;
    before = Snapshot("out");
    for (const char* binary : {kSingle, kDdp}) {
      EXPECT_THAT(Fail(binary, with("mesh.dp=1")),
                  AllOf(HasSubstr("step-00000006.safetensors"), HasSubstr("\"go_back\"")));
      EXPECT_EQ(Snapshot("out"), before);
    }
  }
}

TEST_F(BadInputTest, AFinishedRunIsNotResumed) {
  ASSERT_TRUE(Start(kSingle, {}).ok());
  const auto before = Snapshot("out");
  EXPECT_THAT(Fail(kSingle, {"--resume"}), HasSubstr("nothing is left to do"));
  EXPECT_THAT(Fail(kSingle, {"--resume", "--set", "train.steps=5"}),
              HasSubstr("raise train.steps"));
  EXPECT_EQ(Snapshot("out"), before);
}

// Killed after its last checkpoint, before its summary.
TEST_F(BadInputTest, AMissingSummaryIsMadeUpFor) {
  ASSERT_TRUE(Start(kSingle, {}).ok());
  const std::string losses = *ReadFile(Path("out/losses.csv"));
  const std::string summary = *ReadFile(Path("out/summary.json"));
  fs::remove(Path("out/summary.json"));
  const ProcessResult result = Start(kSingle, {"--resume"});
  ASSERT_TRUE(result.ok()) << result.err;
  EXPECT_EQ(*ReadFile(Path("out/losses.csv")), losses);
  for (const char* name : {"parameter_hash", "validation_loss"}) {
    EXPECT_EQ(Line(*ReadFile(Path("out/summary.json")), name), Line(summary, name));
  }
}

// Killed in the middle, resumed: the same curve and the same bits as if nothing had happened.
TEST_F(BadInputTest, AKilledRunGoesOn) {
  const std::vector<std::string> longer = {"--set", "train.steps=400",
                                           "--set", "schedule.total_steps=400",
                                           "--set", "checkpoint.every=20"};
  ASSERT_TRUE(Start(kDdp, longer).ok());
  const std::string losses = *ReadFile(Path("out/losses.csv"));
  const std::string summary = *ReadFile(Path("out/summary.json"));

  auto process = Subprocess::Start(Options(kDdp, longer));
  ASSERT_TRUE(process.ok()) << process.status();
  while (!fs::exists(Path("out/checkpoints/step-00000020.safetensors")) &&
         !fs::exists(Path("out/checkpoints/step-00000040.safetensors"))) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  process->Signal(SIGKILL);
  EXPECT_EQ(process->Wait().signal, SIGKILL);
  // As a kill in the middle of writing leaves it: nobody reads it.
  Write("out/checkpoints/step-00000400.safetensors.tmp-1", "half a");
  EXPECT_FALSE(fs::exists(Path("out/summary.json")));

  auto resumed = longer;
  resumed.push_back("--resume");
  const ProcessResult result = Start(kDdp, resumed);
  ASSERT_TRUE(result.ok()) << result.err;
  EXPECT_EQ(*ReadFile(Path("out/losses.csv")), losses);
  EXPECT_EQ(Line(*ReadFile(Path("out/summary.json")), "parameter_hash"),
            Line(summary, "parameter_hash"));
}

// A line of a table: its first cell and its last.
std::map<std::string, std::string> LastCells(const std::string& text) {
  std::map<std::string, std::string> cells;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    if (line.size() < 40 || line.substr(0, 4) != "    ") continue;
    const std::string name(absl::StripAsciiWhitespace(line.substr(0, 34)));
    const size_t two_blanks = line.rfind("  ");
    cells[name] = std::string(absl::StripAsciiWhitespace(line.substr(two_blanks)));
  }
  return cells;
}

TEST_F(BadInputTest, ADryRunSaysWhatTheRunCostsAndLeavesNothing) {
  const ProcessResult dry = Start(kDdp, {"--dry_run"});
  ASSERT_TRUE(dry.ok()) << dry.err;
  EXPECT_THAT(dry.out, StartsWith("bad_input under ddp, mesh "));
  EXPECT_FALSE(fs::exists(Path("out")));
  const ProcessResult run = Start(kDdp, {});
  ASSERT_TRUE(run.ok()) << run.err;
  auto forecast = LastCells(dry.out), measured = LastCells(run.out);
  for (const std::string name : {"parameters", "gradients", "optimizer_state", "activations",
                                 "communication", "workspace"}) {
    EXPECT_NE(measured[name], "") << run.out;
    EXPECT_EQ(forecast[name], measured[name]) << name << "\n" << dry.out << run.out;
  }
  EXPECT_NE(forecast["all_reduce gradients"], "") << dry.out;
  EXPECT_THAT(Fail(kDdp, {"--dry_run", "--set", "mesh.dp=3"}),
              HasSubstr("batch.size is 8 samples"));
}

// Whoever removes the directory of a run learns so when the next checkpoint is due.
TEST_F(BadInputTest, ADirectoryRemovedUnderTheRunIsNamed) {
  auto process = Subprocess::Start(
      Options(kSingle, {"--set", "train.steps=1000000", "--set", "schedule.total_steps=1000000",
                        "--set", "checkpoint.every=20"}));
  ASSERT_TRUE(process.ok()) << process.status();
  const auto has_checkpoint = [](const std::string& folder) {
    const auto names = ListFolder(folder).value_or(std::vector<std::string>());
    return std::ranges::any_of(
        names, [](const std::string& name) { return name.ends_with(".safetensors"); });
  };
  while (!has_checkpoint(Path("out/checkpoints"))) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  fs::rename(Path("out"), Path("away"));
  const ProcessResult result = process->Wait();
  EXPECT_EQ(result.exit_code, 1) << result.err;
  // It may go between any two calls.
  EXPECT_THAT(result.err,
              ::testing::AnyOf(HasSubstr("losses.csv\" was removed or replaced while the run"),
                               HasSubstr("No such file or directory")));
  // No checkpoint is lost that was there.
  EXPECT_TRUE(has_checkpoint(Path("away/checkpoints")));
}

// Told to stop amid a step: the step is ended and saved, and the run goes on from there.
TEST_F(BadInputTest, AStoppedRunGoesOn) {
  const std::vector<std::string> longer = {"--set", "train.steps=1000",
                                           "--set", "schedule.total_steps=1000",
                                           "--set", "checkpoint.every=0"};
  ASSERT_TRUE(Start(kDdp, longer).ok());
  const std::string losses = *ReadFile(Path("out/losses.csv"));
  const std::string summary = *ReadFile(Path("out/summary.json"));
  fs::remove_all(Path("out"));

  const auto rows = [this] {
    const absl::StatusOr<std::string> text = ReadFile(Path("out/losses.csv"));
    return text.ok() ? std::ranges::count(*text, '\n') : 0;
  };
  auto arguments = longer;
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP}) {
    const auto before = rows();
    auto process = Subprocess::Start(Options(kDdp, arguments));
    ASSERT_TRUE(process.ok()) << process.status();
    while (rows() < before + 20) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    process->Signal(signal);
    process->Signal(signal);  // at once: from the terminal, and from who has started the program
    const ProcessResult result = process->Wait();
    EXPECT_EQ(result.exit_code, kStoppedExitCode) << result.Describe() << result.err;
    const auto steps = rows() - 1;  // but for the header
    EXPECT_THAT(result.err,
                AllOf(HasSubstr(absl::StrCat("stopping after step ", steps, "; a second signal")),
                      HasSubstr(absl::StrCat("stopped after step ", steps, " of 1000; its "))));
    EXPECT_TRUE(fs::exists(Path(absl::StrFormat("out/checkpoints/step-%08d.safetensors", steps))));
    EXPECT_FALSE(fs::exists(Path("out/error.txt")));
    arguments = longer;
    arguments.push_back("--resume");
  }
  arguments.insert(arguments.end(), {"--set", "trace.steps=1"});
  const ProcessResult result = Start(kDdp, arguments);
  ASSERT_TRUE(result.ok()) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("; goes on with step "),
                                HasSubstr("changed since: trace.steps not set -> 1\n")));
  EXPECT_EQ(*ReadFile(Path("out/losses.csv")), losses);
  EXPECT_EQ(Line(*ReadFile(Path("out/summary.json")), "parameter_hash"),
            Line(summary, "parameter_hash"));
}

// --- one directory, one program ------------------------------------------------------------------

// Steps that take some seconds.
const std::vector<std::string> kLong = {"--set", "train.steps=20000", "--set",
                                        "checkpoint.every=5"};

TEST_F(BadInputTest, TwoProgramsDoNotShareADirectory) {
  auto first = Subprocess::Start(Options(kSingle, kLong));
  ASSERT_TRUE(first.ok()) << first.status();
  while (!fs::exists(Path("out/checkpoints/step-00000005.safetensors"))) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (const char* flag : {"--resume=false", "--resume"}) {
    EXPECT_THAT(Fail(kDdp, {flag}), AllOf(HasSubstr("another program is using this run directory"),
                                          HasSubstr("host "), HasSubstr("use another --out")));
  }
  EXPECT_FALSE(fs::exists(Path("out.1")));
  EXPECT_FALSE(fs::exists(Path("out/error.txt")));
  first->Signal(SIGTERM);
  EXPECT_EQ(first->Wait().exit_code, kStoppedExitCode);
}

TEST_F(BadInputTest, ForeignFilesAreLeftAlone) {
  Write("out/config.toml", "mine = true\n");
  Write("out/checkpoints/notes.txt", "mine");
  const auto before = Snapshot("out");
  EXPECT_THAT(Fail(kSingle, {}), HasSubstr("holds files that are no run's"));
  EXPECT_THAT(Fail(kSingle, {"--resume"}), HasSubstr("holds files that are no run's"));
  EXPECT_THAT(Fail(kSingle, {"--set", "train.stesp=1"}),
              HasSubstr("unknown key train.stesp; did you mean train.steps?"));
  EXPECT_EQ(Snapshot("out"), before);
  EXPECT_FALSE(fs::exists(Path("out.1")));
}

TEST_F(BadInputTest, NamesDoNotLeaveTheFolderOfRuns) {
  for (const char* name : {"../x", "/tmp/x", "..", "a/b", "\"\""}) {
    EXPECT_THAT(Fail(kSingle, {"--set", absl::StrCat("name=", name)}),
                HasSubstr("is no name of a folder"));
  }
  ASSERT_TRUE(Start(kSingle, {"--out", Path("out") + "/"}).ok());
  const ProcessResult again = Start(kSingle, {"--out", Path("out") + "/"});
  ASSERT_TRUE(again.ok()) << again.err;
  EXPECT_THAT(again.err, HasSubstr("bad_input/out held an earlier run, which is now "));
  EXPECT_TRUE(fs::exists(Path("out.1/losses.csv")));
}

// --- going on ------------------------------------------------------------------------------------

TEST_F(BadInputTest, ResumingTakesACheckpointAndTheLossesBeforeIt) {
  EXPECT_THAT(Fail(kSingle, {"--resume"}), HasSubstr("holds no checkpoint to go on from"));
  ASSERT_TRUE(Start(kSingle, {}).ok());
  const std::string losses = *ReadFile(Path("out/losses.csv"));
  const std::vector<std::string> longer = {"--resume", "--set", "train.steps=8"};
  for (const std::string& damaged :
       {std::string(), losses.substr(0, 10), losses.substr(0, losses.size() - 1),
        losses.substr(0, losses.rfind('\n', losses.size() - 2) + 1),
        std::string(losses).erase(losses.find("2,"), 4)}) {
    Write("out/losses.csv", damaged);
    const auto before = Snapshot("out");
    EXPECT_NE(Fail(kSingle, longer), "");
    EXPECT_EQ(Snapshot("out"), before);
  }
  fs::remove(Path("out/losses.csv"));
  EXPECT_THAT(Fail(kSingle, longer), AllOf(HasSubstr("losses.csv: lacks the row of step 0"),
                                           HasSubstr("6 steps behind it")));
  Write("out/losses.csv", losses);
  Write("out/metrics.jsonl", "no json\n");
  const auto before = Snapshot("out");
  EXPECT_THAT(Fail(kSingle, longer), HasSubstr("metrics.jsonl:1"));
  EXPECT_EQ(Snapshot("out"), before);
  fs::remove_all(Path("out/checkpoints"));
  EXPECT_THAT(Fail(kSingle, longer), HasSubstr("holds no checkpoint to go on from"));
}

TEST_F(BadInputTest, ACheckpointsOwnStepDecides) {
  ASSERT_TRUE(Start(kSingle, {}).ok());
  const std::string losses = *ReadFile(Path("out/losses.csv"));
  fs::remove(Path("out/summary.json"));
  fs::rename(Path("out/checkpoints/step-00000004.safetensors"),
             Path("out/checkpoints/step-00009999.safetensors"));
  ASSERT_TRUE(Start(kSingle, {"--resume"}).ok());
  EXPECT_EQ(*ReadFile(Path("out/losses.csv")), losses);
}

TEST_F(BadInputTest, WhatShapesTheCurveStaysUnlessAllowed) {
  ASSERT_TRUE(Start(kSingle, {}).ok());
  const auto before = Snapshot("out");
  const std::map<std::string, std::string> changes = {{"train.seed", "2"},
                                                      {"batch.size", "4"},
                                                      {"precision.compute", "bf16"},
                                                      {"data.source", "1"},
                                                      {"cut.micro_batches", "2"}};
  for (const auto& [key, value] : changes) {
    const std::vector<std::string> resume = {"--resume", "--set", "train.steps=8", "--set",
                                             absl::StrCat(key, "=", value)};
    EXPECT_THAT(Fail(kSingle, resume), HasSubstr("--allow_change " + key));
    EXPECT_EQ(Snapshot("out"), before);
  }
  EXPECT_THAT(Fail(kSingle, {"--resume", "--allow_change", "sead"}),
              HasSubstr("--allow_change sead: is no key"));
  EXPECT_THAT(Fail(kSingle, {"--allow_change", "data"}), HasSubstr("goes with --resume"));
  const ProcessResult other = Start(kSingle, {"--resume", "--allow_change", "data", "--set",
                                              "data.source=1", "--set", "train.steps=8"});
  EXPECT_TRUE(other.ok()) << other.err;
}

TEST_F(BadInputTest, EveryByteOfACheckpointIsChecked) {
  ASSERT_TRUE(Start(kSingle, {}).ok());
  const std::string newest = Path("out/checkpoints/step-00000006.safetensors");
  const std::string whole = *ReadFile(newest);
  for (size_t part = 0; part < 12; ++part) {
    std::string changed = whole;
    changed[part * (whole.size() - 1) / 11] ^= static_cast<char>(1 << part % 8);
    std::ofstream(newest, std::ios::binary) << changed;
    EXPECT_THAT(
        Fail(kSingle, {"--resume", "--set", "train.steps=8", "--set", "checkpoint.on_damage=stop"}),
        HasSubstr("step-00000006.safetensors"))
        << part;
  }
}

// Flips a bit in the middle of a file.
void Damage(const std::string& path) {
  std::string bytes = *ReadFile(path);
  bytes[bytes.size() / 2] ^= 4;
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST_F(BadInputTest, ADamagedCheckpointIsPassedOver) {
  const std::vector<std::string> longer = {"--resume", "--set", "train.steps=8", "--set",
                                           "checkpoint.keep=2"};
  ASSERT_TRUE(Start(kSingle, {}).ok());
  fs::copy(Path("out"), Path("undisturbed"), fs::copy_options::recursive);
  ASSERT_TRUE(Start(kSingle, longer).ok());
  const std::string losses = *ReadFile(Path("out/losses.csv"));
  fs::remove_all(Path("out"));
  fs::rename(Path("undisturbed"), Path("out"));

  const std::string newest = Path("out/checkpoints/step-00000006.safetensors");
  Damage(newest);
  const ProcessResult passed_over = Start(kSingle, longer);
  EXPECT_TRUE(passed_over.ok()) << passed_over.err;
  EXPECT_THAT(passed_over.err,
              AllOf(HasSubstr("passes a damaged checkpoint over"),
                    HasSubstr("step-00000006.safetensors\" is damaged"), HasSubstr("of tensor '"),
                    HasSubstr("step-00000006.safetensors.damaged")));
  EXPECT_EQ(*ReadFile(Path("out/losses.csv")), losses);
  EXPECT_TRUE(fs::exists(newest + ".damaged"));
  EXPECT_TRUE(fs::exists(newest));  // made anew on the way

  // Where none is sound, the newest is named, and nothing is changed.
  Damage(newest);
  Damage(Path("out/checkpoints/step-00000008.safetensors"));
  const auto before = Snapshot("out");
  EXPECT_THAT(Fail(kSingle, {"--resume", "--set", "train.steps=9"}),
              AllOf(HasSubstr("no checkpoint is sound; the newest: "),
                    HasSubstr("step-00000008.safetensors\" is damaged")));
  EXPECT_EQ(Snapshot("out"), before);
}

// --- numbers -------------------------------------------------------------------------------------

TEST_F(BadInputTest, ALossThatIsNotANumberStopsTheRun) {
  const std::vector<std::string> diverges = {"--resume", "--set", "train.steps=60", "--set",
                                             "schedule.learning_rate=1e30"};
  ASSERT_TRUE(Start(kSingle, {}).ok());
  EXPECT_THAT(Fail(kSingle, diverges),
              AllOf(HasSubstr("the loss is "), HasSubstr("learning_rate"), HasSubstr("--resume")));
  EXPECT_THAT(Fail(kSingle, diverges), HasSubstr("--set probe.first_step="));
  const std::string good = Path("out/checkpoints/step-00000006.safetensors");
  const std::string bytes = *ReadFile(good);
  auto goes_on = diverges;
  goes_on.insert(goes_on.end(), {"--set", "train.on_nan=continue"});
  const ProcessResult result = Start(kSingle, goes_on);
  EXPECT_TRUE(result.ok()) << result.err;
  EXPECT_THAT(*ReadFile(Path("out/losses.csv")), HasSubstr("59,"));
  // What is infinite or NaN has replaced nothing.
  ASSERT_TRUE(fs::exists(good));
  EXPECT_EQ(*ReadFile(good), bytes);
}

// The learning rate rises without end, and the loss with it.
TEST_F(BadInputTest, ALossThatJumpsStopsTheRunBeforeTheNextCheckpoint) {
  ASSERT_TRUE(Start(kSingle, {}).ok());
  const std::vector<std::string> jumps = {
      "--resume",         "--set", "train.steps=60", "--set", "schedule.learning_rate=3", "--set",
      "guard.loss_jump=2"};
  EXPECT_THAT(Fail(kSingle, jumps),
              AllOf(HasSubstr("the loss jumps to "), HasSubstr("guard.loss_jump = 2 times the "),
                    HasSubstr("--set probe.first_step=")));
}

// Ranks that hold the same compare it, and find it so, on a mesh with replicas and without.
TEST_F(BadInputTest, GuardedRunsHaveTheCurveOfOthers) {
  ASSERT_TRUE(Start(kDdp, {"--set", "mesh.dp=2"}).ok());
  const std::string losses = *ReadFile(Path("out/losses.csv"));
  const ProcessResult guarded =
      Start(kDdp, {"--set", "mesh.dp=2", "--set", "guard.every=1", "--set", "guard.loss_jump=10"});
  EXPECT_TRUE(guarded.ok()) << guarded.err;
  EXPECT_EQ(*ReadFile(Path("out/losses.csv")), losses);
}

TEST_F(BadInputTest, SizesThatNoMachineHas) {
  for (const char* assignment :
       {"lora={layers=[\"*\"], rank=4611686018427387904}", "model.width=4611686018427387904",
        "batch.size=4611686018427387904", "data.context=2305843009213693952",
        "model.layers=1000000000", "run.threads=2147483648",
        "data.train_samples=9223372036854775807", "run.timeout_seconds=9.3e9",
        "schedule.learning_rate=1e300", "lora={layers=[\"*\"], alpha=1e300}"}) {
    EXPECT_THAT(Fail(kSingle, {"--set", assignment}), HasSubstr("at most"));
  }
  // Each by itself is in range.
  EXPECT_THAT(Fail(kSingle, {"--set", "model.width=1048576", "--set", "model.layers=1000"}),
              AllOf(HasSubstr("parameters: its weights and gradients alone take"),
                    HasSubstr("lower the sizes in [model]")));
  EXPECT_THAT(Fail(kSingle, {"--set", "batch.size=16777216", "--set", "data.context=4194304"}),
              AllOf(HasSubstr("a micro-batch of 16777216 samples"), HasSubstr("lower batch.size")));
}

// The keys of the help that are whole numbers, by table and, where they are not always there, the
// assignment that they are there with: {"data", "data.kind=\"text\""} -> {"context"}.
std::map<std::pair<std::string, std::string>, std::vector<std::string>> WholeNumbers(
    const std::string& help) {
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> keys;
  std::string table, with;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(help, '\n'))) {
    const std::vector<std::string> parts = absl::StrSplit(line, "with ");
    const std::string condition =
        parts.size() < 2 ? "" : absl::StrReplaceAll(parts[1], {{" ", ""}, {":", ""}});
    if (absl::StartsWith(line, "[")) {
      table = line.substr(1, line.find(']') - 1);
      with = condition;
    } else if (absl::StartsWith(line, "  with ")) {
      with = absl::StrCat(table, ".", condition);
    } else if (absl::StrContains(line, "a whole number") && !absl::StrContains(line, "fixed by")) {
      keys[{table, with}].emplace_back(
          absl::StripAsciiWhitespace(line.substr(0, line.find_first_of("=#"))));
    }
  }
  return keys;
}

TEST_F(BadInputTest, EveryWholeNumberHasARange) {
  const auto keys = WholeNumbers(Start(kDdp, {"--help"}).out);
  EXPECT_GT(keys.size(), 20u);
  for (const auto& [place, names] : keys) {
    const auto& [table, with] = place;
    for (const std::string value : {"9223372036854775807", "-9223372036854775808"}) {
      std::vector<std::string> arguments = {"--print_config"};
      std::vector<std::string> expected;
      if (!with.empty()) arguments.insert(arguments.end(), {"--set", with});
      if (table == "lora") arguments.insert(arguments.end(), {"--set", "lora.layers=[\"*\"]"});
      for (const std::string& name : names) {
        // Any number that is not negative serves as a seed.
        const bool is_seed = name.ends_with("seed") || name == "source";
        if (is_seed && value[0] != '-') continue;
        const std::string key = table + "." + name;
        arguments.insert(arguments.end(), {"--set", key + "=" + value});
        expected.push_back(key);
      }
      if (expected.empty()) continue;
      const std::string message = Fail(kDdp, arguments);
      for (const std::string& key : expected) {
        EXPECT_THAT(message, HasSubstr(key + " is " + value));
      }
    }
  }
}

// --- files and streams ---------------------------------------------------------------------------

TEST_F(BadInputTest, InputsThatAreNoFilesAreNotWaitedFor) {
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0666), 0);
  EXPECT_THAT(Fail(kSingle, {"--config", Path("fifo")}), HasSubstr("it is a FIFO"));
  EXPECT_THAT(Fail(kSingle, {"--config", "/dev/zero"}), HasSubstr("it is a device"));
  EXPECT_THAT(Fail(kSingle, {"--set", "model.init=" + Path("fifo")}), HasSubstr("it is a FIFO"));
  EXPECT_THAT(Fail(kSingle, {"--config", Path(std::string(300, 'x'))}), HasSubstr("too long"));
  EXPECT_THAT(Fail(kSingle, {"--out", Path(std::string(300, 'x'))}), HasSubstr("too long"));
  fs::create_symlink(Path("loop"), Path("loop"));
  EXPECT_THAT(Fail(kSingle, {"--out", Path("loop/out")}), HasSubstr("in the way"));
}

TEST_F(BadInputTest, LimitsOfTheSystemEndInAMessage) {
  const auto under = [this](const std::string& limit) {
    ProcessOptions options = Options(kSingle, {});
    options.arguments.insert(options.arguments.begin(),
                             {"/bin/sh", "-c", limit + "; exec \"$@\"", "sh"});
    auto result = RunProcess(options);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : ProcessResult{};
  };
  const ProcessResult file = under("ulimit -f 8");
  EXPECT_EQ(file.exit_code, 1) << file.Describe();
  EXPECT_THAT(file.err, HasSubstr("File too large"));
  const ProcessResult full = under("exec > /dev/full");
  EXPECT_EQ(full.exit_code, 1) << full.Describe();
  EXPECT_THAT(full.err, HasSubstr("cannot write to the standard output"));
}

}  // namespace
}  // namespace lockstep
