// What a run leaves in its directory, and how it goes on from there, through the whole program:
// whatever ends it, nothing is lost, and the curve is that of a run which nobody disturbed.

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>  // setenv
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/file.h"
#include "core/base/subprocess.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/checkpoint/in_memory.h"
#include "core/run/stop/run_signals.h"
#include "core/run/testing/trainer_program_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class RunSafetyTest : public TrainerProgramTest {};

TEST_F(RunSafetyTest, RunDirectoryThatCannotBeMade) {
  Write("file", "in the way");
  ProcessOptions options = Options(kSingle, {"--out", Path("file/out")});
  const auto result = RunProcess(options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->exit_code, 1);
  EXPECT_THAT(result->err, HasSubstr("small/file\""));
  EXPECT_EQ(*ReadFile(Path("file")), "in the way");
}

TEST_F(RunSafetyTest, AnEarlierRunIsSetAside) {
  const ProcessResult first = Start(kSingle, {});
  ASSERT_TRUE(first.ok()) << first.err;
  EXPECT_THAT(first.err, Not(HasSubstr("held an earlier run")));
  const std::string losses = *ReadFile(Path("out/losses.csv"));
  const ProcessResult second = Start(kSingle, {"--set", "train.seed=2"});
  ASSERT_TRUE(second.ok()) << second.err;
  EXPECT_THAT(Line(second.err, "held an earlier run"), EndsWith("/small/out.1"));
  EXPECT_EQ(*ReadFile(Path("out.1/losses.csv")), losses);
  EXPECT_NE(*ReadFile(Path("out/losses.csv")), losses);
}

TEST_F(RunSafetyTest, CorruptAndForeignCheckpointsLeaveEverythingAsItWas) {
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

// Both a run and weights to start from, wherever the file ends.
TEST_F(RunSafetyTest, TruncatedCheckpointsNameARemedy) {
  ASSERT_TRUE(Start(kSingle, {"--set", "checkpoint.keep=1"}).ok());
  const std::string newest = Path("out/checkpoints/step-00000006.safetensors");
  const std::string whole = *ReadFile(newest);
  for (const size_t bytes :
       {size_t{0}, size_t{7}, size_t{100}, whole.size() / 2, whole.size() - 1}) {
    std::ofstream(newest, std::ios::binary) << whole.substr(0, bytes);
    EXPECT_THAT(Fail(kSingle, {"--resume", "--set", "train.steps=8"}),
                AllOf(HasSubstr("without --resume the run starts again"),
                      HasSubstr("step-00000006.safetensors\" is no sound safetensors file: "),
                      HasSubstr("; put a sound copy in its place, or use another file")))
        << bytes;
    EXPECT_THAT(Fail(kSingle, {"--out", Path("tuned"), "--set", "model.init=" + newest}),
                AllOf(HasSubstr("model.init: "), HasSubstr("; put a sound copy in its place")))
        << bytes;
  }
}

TEST_F(RunSafetyTest, AFinishedRunIsNotResumed) {
  ASSERT_TRUE(Start(kSingle, {}).ok());
  const auto before = Snapshot("out");
  EXPECT_THAT(Fail(kSingle, {"--resume"}), HasSubstr("nothing is left to do"));
  EXPECT_THAT(Fail(kSingle, {"--resume", "--set", "train.steps=5"}),
              HasSubstr("raise train.steps"));
  EXPECT_EQ(Snapshot("out"), before);
}

// Killed after its last checkpoint, before its summary.
TEST_F(RunSafetyTest, AMissingSummaryIsMadeUpFor) {
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
TEST_F(RunSafetyTest, AKilledRunGoesOn) {
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

// Steps that nobody waits for the end of.
const std::vector<std::string> kEndless = {"--set", "train.steps=1000000", "--set",
                                           "schedule.total_steps=1000000"};

// Whoever removes the directory of a run learns so when the next checkpoint is due. Ranks that are
// threads do not begin anew either.
TEST_F(RunSafetyTest, ADirectoryRemovedUnderTheRunIsNamed) {
  const auto has_checkpoint = [](const std::string& folder) {
    const auto names = ListFolder(folder).value_or(std::vector<std::string>());
    return std::ranges::any_of(
        names, [](const std::string& name) { return name.ends_with(".safetensors"); });
  };
  const std::vector<std::string> elastic = {"--elastic", "--set", "mesh.dp=2"};
  for (const auto& [binary, more] :
       {std::pair(kSingle, std::vector<std::string>()), std::pair(kDdp, elastic)}) {
    std::vector<std::string> arguments = kEndless;
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.insert(arguments.end(), {"--set", "checkpoint.every=20"});
    auto process = Subprocess::Start(Options(binary, arguments));
    ASSERT_TRUE(process.ok()) << process.status();
    while (!has_checkpoint(Path("out/checkpoints"))) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    fs::remove_all(Path("away"));
    fs::rename(Path("out"), Path("away"));
    const ProcessResult result = process->Wait();
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr("out\" was removed while the run wrote to it"));
    EXPECT_THAT(result.err, Not(HasSubstr("going on")));
    EXPECT_FALSE(fs::exists(Path("out")));
    // No checkpoint is lost that was there.
    EXPECT_TRUE(has_checkpoint(Path("away/checkpoints")));
  }
}

TEST_F(RunSafetyTest, ADirectoryRemovedUnderARunWithCopiesInMemoryIsNamed) {
  std::vector<std::string> arguments = kEndless;
  arguments.insert(arguments.end(),
                   {"--elastic", "--set", "mesh.dp=2", "--set", "checkpoint.every=1000000", "--set",
                    "checkpoint.in_memory_every=20"});
  auto process = Subprocess::Start(Options(kDdp, arguments));
  ASSERT_TRUE(process.ok()) << process.status();
  while (ReadFile(Path("out/metrics.jsonl")).value_or("").find("copy_in_memory") ==
         std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  fs::rename(Path("out"), Path("away"));
  const ProcessResult result = process->Wait();
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("out\" was removed while the run wrote to it"));
  EXPECT_FALSE(fs::exists(Path("out")));
  fs::rename(Path("away"), Path("out"));
  RemoveInMemoryFolder(Path("out"));
}

// Copies of an earlier run in the directory, on a machine where the newer run had no rank: folders
// are machines here.
TEST_F(RunSafetyTest, ACopyInMemoryOfAnEarlierRunIsNotGoneOnFrom) {
  const auto be_on = [this](const char* machine) {
    fs::create_directories(Path(machine));
    ASSERT_EQ(setenv("LOCKSTEP_MEMORY", Path(machine).c_str(), /*overwrite=*/1), 0);
  };
  const auto with_steps = [](int64_t steps, std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--set", absl::StrCat("train.steps=", steps), "--set",
                                       "schedule.total_steps=20000"});
    return arguments;
  };
  be_on("first");
  auto earlier = Subprocess::Start(Options(
      kSingle,
      with_steps(20000, {"--set", "checkpoint.every=0", "--set", "checkpoint.in_memory_every=2"})));
  ASSERT_TRUE(earlier.ok()) << earlier.status();
  while (ReadFile(Path("out/metrics.jsonl")).value_or("").find("copy_in_memory") ==
         std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  earlier->Signal(SIGKILL);
  earlier->Wait();
  const auto copies = ListRunCheckpoints(Path("out")).value();
  ASSERT_FALSE(copies.empty());
  const int64_t steps = copies.back().step;
  const std::string folder = InMemoryFolder(Path("out"));

  be_on("second");
  const std::vector<std::string> other = {"--set", "schedule.learning_rate=0.003"};
  ASSERT_TRUE(Start(kSingle, with_steps(steps, other)).ok());
  be_on("first");
  EXPECT_TRUE(fs::exists(folder));
  std::vector<std::string> resumed = with_steps(steps + 2, other);
  resumed.emplace_back("--resume");
  const ProcessResult result = Start(kSingle, resumed);
  ASSERT_TRUE(result.ok()) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("the copy in memory")));
  EXPECT_TRUE(fs::is_empty(Path("first")));
  ASSERT_EQ(unsetenv("LOCKSTEP_MEMORY"), 0);

  const std::string losses = *ReadFile(Path("out/losses.csv"));
  ASSERT_TRUE(Start(kSingle, with_steps(steps + 2, other)).ok());
  EXPECT_EQ(*ReadFile(Path("out/losses.csv")), losses);
}

// A digit of losses.csv that has flipped since the checkpoint is not gone on from.
TEST_F(RunSafetyTest, DamagedRowsAreNamedAndLeaveEverythingAsItWas) {
  ASSERT_TRUE(Start(kSingle, {}).ok());
  std::string losses = *ReadFile(Path("out/losses.csv"));
  const size_t digit = losses.find('.') + 3;
  losses[digit] = losses[digit] == '7' ? '5' : '7';
  Write("out/losses.csv", losses);
  const auto before = Snapshot("out");
  EXPECT_THAT(Fail(kSingle, {"--resume", "--set", "train.steps=8"}),
              AllOf(HasSubstr("losses.csv: the rows of the steps 0 to 1 are not those that stood"),
                    HasSubstr("Put the file back; or remove row_checksums.jsonl")));
  EXPECT_EQ(Snapshot("out"), before);
  fs::remove(Path("out/row_checksums.jsonl"));
  EXPECT_TRUE(Start(kSingle, {"--resume", "--set", "train.steps=8"}).ok());
}

// Told to stop amid a step: the step is ended and saved, and the run goes on from there.
TEST_F(RunSafetyTest, AStoppedRunGoesOn) {
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
                                HasSubstr("changed since: trace.steps 3 -> 1\n")));
  EXPECT_EQ(*ReadFile(Path("out/losses.csv")), losses);
  EXPECT_EQ(Line(*ReadFile(Path("out/summary.json")), "parameter_hash"),
            Line(summary, "parameter_hash"));
}

// Weights that are NaN are not saved: what was saved before them stays, on the disk and in memory.
TEST_F(RunSafetyTest, AStoppedRunWithoutFiniteWeightsSaysWhereItGoesOn) {
  const std::vector<std::string> common = {
      "--set", "train.steps=20000",           "--set", "schedule.total_steps=20000",
      "--set", "schedule.learning_rate=1e30", "--set", "train.on_nan=continue"};
  struct Case {
    std::vector<std::string> arguments;
    std::string says;
    bool goes_on;
  };
  for (const Case& saved :
       {Case{{"--set", "checkpoint.every=0", "--set", "checkpoint.in_memory_every=1"},
             ", as weights are infinite or NaN: --resume goes on from the copy in memory of step ",
             true},
        Case{{"--set", "checkpoint.every=1"},
             ", as weights are infinite or NaN: --resume goes on from the checkpoint of step ",
             true},
        Case{{"--set", "checkpoint.every=0"},
             ", as weights are infinite or NaN, and no earlier one: --resume has nothing to go on "
             "from",
             false}}) {
    SCOPED_TRACE(saved.says);
    fs::remove_all(Path("out"));
    std::vector<std::string> arguments = common;
    arguments.insert(arguments.end(), saved.arguments.begin(), saved.arguments.end());
    auto process = Subprocess::Start(Options(kSingle, arguments));
    ASSERT_TRUE(process.ok()) << process.status();
    const auto rows = [this] {
      const std::string text = ReadFile(Path("out/losses.csv")).value_or("");
      return std::ranges::count(text, '\n');
    };
    while (rows() < 30) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    process->Signal(SIGTERM);
    const ProcessResult result = process->Wait();
    EXPECT_EQ(result.exit_code, kStoppedExitCode) << result.Describe() << result.err;
    const std::string line = Line(result.err, "stopped after step ");
    EXPECT_THAT(line, HasSubstr("no checkpoint behind that step" + saved.says));
    const auto all = ListRunCheckpoints(Path("out")).value();
    if (!saved.goes_on) {
      EXPECT_TRUE(all.empty());
      continue;
    }
    ASSERT_FALSE(all.empty());
    EXPECT_LT(all.back().step, 30);
    EXPECT_THAT(line, EndsWith(absl::StrCat(" of step ", all.back().step)));
    arguments.insert(arguments.end(), {"--resume", "--set", "train.steps=40"});
    const ProcessResult resumed = Start(kSingle, arguments);
    EXPECT_TRUE(resumed.ok()) << resumed.err;
    EXPECT_THAT(resumed.err, HasSubstr(absl::StrCat("goes on with step ", all.back().step + 1)));
    EXPECT_FALSE(fs::exists(InMemoryFolder(Path("out"))));  // the run is complete
  }
}

// Steps that take some seconds.
const std::vector<std::string> kLong = {"--set", "train.steps=20000", "--set",
                                        "checkpoint.every=5"};

TEST_F(RunSafetyTest, TwoProgramsDoNotShareADirectory) {
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

TEST_F(RunSafetyTest, ForeignFilesAreLeftAlone) {
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

TEST_F(RunSafetyTest, NamesDoNotLeaveTheFolderOfRuns) {
  for (const char* name : {"../x", "/tmp/x", "..", "a/b", "\"\""}) {
    EXPECT_THAT(Fail(kSingle, {"--set", absl::StrCat("name=", name)}),
                HasSubstr("is no name of a folder"));
  }
  ASSERT_TRUE(Start(kSingle, {"--out", Path("out") + "/"}).ok());
  const ProcessResult again = Start(kSingle, {"--out", Path("out") + "/"});
  ASSERT_TRUE(again.ok()) << again.err;
  EXPECT_THAT(again.err, HasSubstr("small/out held an earlier run, which is now "));
  EXPECT_TRUE(fs::exists(Path("out.1/losses.csv")));
}

TEST_F(RunSafetyTest, ResumingTakesACheckpointAndTheLossesBeforeIt) {
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

TEST_F(RunSafetyTest, ACheckpointsOwnStepDecides) {
  ASSERT_TRUE(Start(kSingle, {}).ok());
  const std::string losses = *ReadFile(Path("out/losses.csv"));
  fs::remove(Path("out/summary.json"));
  fs::rename(Path("out/checkpoints/step-00000004.safetensors"),
             Path("out/checkpoints/step-00009999.safetensors"));
  ASSERT_TRUE(Start(kSingle, {"--resume"}).ok());
  EXPECT_EQ(*ReadFile(Path("out/losses.csv")), losses);
}

TEST_F(RunSafetyTest, WhatShapesTheCurveStaysUnlessAllowed) {
  ASSERT_TRUE(Start(kSingle, {}).ok());
  const auto before = Snapshot("out");
  const std::map<std::string, std::string> changes = {
      {"train.seed", "2"},  {"batch.size", "4"},        {"precision.compute", "bf16"},
      {"data.source", "1"}, {"cut.micro_batches", "2"}, {"train.deferred_batch_norm", "false"}};
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
  // A key that says something only where it is not the default; and back again.
  const ProcessResult changed = Start(
      kSingle, {"--resume", "--allow_change", "data", "--allow_change", "train.deferred_batch_norm",
                "--set", "train.deferred_batch_norm=false", "--set", "train.steps=10"});
  EXPECT_TRUE(changed.ok()) << changed.err;
  EXPECT_THAT(Fail(kSingle, {"--resume", "--set", "train.steps=12"}),
              HasSubstr("--allow_change train.deferred_batch_norm"));
  const ProcessResult back =
      Start(kSingle,
            {"--resume", "--allow_change", "train.deferred_batch_norm", "--set", "train.steps=12"});
  EXPECT_TRUE(back.ok()) << back.err;
}

TEST_F(RunSafetyTest, EveryByteOfACheckpointIsChecked) {
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

TEST_F(RunSafetyTest, ADamagedCheckpointIsPassedOver) {
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
                    HasSubstr("step-00000006.safetensors.damaged"),
                    HasSubstr("; goes on with step 5, from "),
                    HasSubstr("small/out/checkpoints/step-00000004.safetensors\n")));
  EXPECT_EQ(*ReadFile(Path("out/losses.csv")), losses);
  EXPECT_TRUE(fs::exists(newest + ".damaged"));
  EXPECT_TRUE(fs::exists(newest));  // made anew on the way

  // Where none is sound, the newest is named, and nothing is changed.
  Damage(newest);
  Damage(Path("out/checkpoints/step-00000008.safetensors"));
  const auto before = Snapshot("out");
  EXPECT_THAT(Fail(kSingle, {"--resume", "--set", "train.steps=9"}),
              AllOf(HasSubstr("without --resume the run starts again; the newest: "),
                    HasSubstr("put a sound copy in its place"),
                    HasSubstr("step-00000008.safetensors\" is damaged")));
  EXPECT_EQ(Snapshot("out"), before);
}

}  // namespace
}  // namespace lockstep
