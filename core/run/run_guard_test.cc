// What stops a run whose losses go wrong, and how a user finds the cause, through the whole
// program.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/file.h"
#include "core/base/subprocess.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/probe/probe_file.h"
#include "core/run/testing/trainer_program_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class RunGuardTest : public TrainerProgramTest {};

TEST_F(RunGuardTest, ALossThatIsNotANumberStopsTheRun) {
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

// The probes of the step, which count what is not finite by themselves, and in the order in which
// one rank computes, know the place too.
TEST_F(RunGuardTest, ALossThatIsNotANumberNamesTheFirstTensorThatIsNotFinite) {
  const std::vector<std::string> diverges = {
      "--set", "optimizer={kind=\"sgd\"}", "--set", "schedule.learning_rate=1e30",
      "--set", "model.layers=2",           "--set", "cut.micro_batches=2",
      "--set", "probe.first_step=1",       "--set", "probe.steps=1"};
  const auto names = [](const std::string& error) {
    const std::string said = "The first tensor that is not finite is the output of ";
    const size_t at = error.find(said);
    return at == std::string::npos ? "" : error.substr(at + said.size());
  };
  const std::string place = names(Fail(kSingle, diverges));
  const auto probes = ReadProbeFile(Path("out/probes/step-000001.rank-00000.jsonl"));
  ASSERT_TRUE(probes.ok()) << probes.status();
  const auto first = std::ranges::find_if(probes->records, [](const ProbeRecord& record) {
    return record.kind == ProbeKind::kForward && record.digest.not_finite > 0;
  });
  ASSERT_NE(first, probes->records.end());
  const std::string expected = absl::StrCat(first->place, " in micro-batch ", first->number);
  EXPECT_THAT(place, StartsWith(expected));

  auto on_two_ranks = diverges;
  on_two_ranks.insert(on_two_ranks.end(), {"--set", "mesh.dp=2"});
  EXPECT_THAT(names(Fail(kDdp, on_two_ranks)), StartsWith(expected));
}

// The learning rate rises without end, and the loss with it.
TEST_F(RunGuardTest, ALossThatJumpsStopsTheRunBeforeTheNextCheckpoint) {
  ASSERT_TRUE(Start(kSingle, {}).ok());
  const std::vector<std::string> jumps = {"--resume",
                                          "--set",
                                          "train.steps=60",
                                          "--set",
                                          "schedule.learning_rate=3",
                                          "--set",
                                          "guard.loss_jump=2",
                                          "--set",
                                          "checkpoint.every=1"};
  const std::string said = Fail(kSingle, jumps);
  EXPECT_THAT(said,
              AllOf(HasSubstr("the loss jumps to "), HasSubstr("guard.loss_jump = 2 times the "),
                    HasSubstr("--set probe.first_step=")));
  const auto steps_saved = [this] {
    return ListCheckpoints(Path("out/checkpoints")).value().back().step;
  };
  const int64_t sound = steps_saved();
  EXPECT_THAT(said, HasSubstr(absl::StrCat("step ", sound + 1, ": the loss jumps to ")));
  // An attempt that begins with the very step knows the losses before, and stops there, too.
  const auto verdict = [](const std::string& err) { return err.substr(err.find("\nstep ")); };
  EXPECT_EQ(verdict(Fail(kSingle, jumps)), verdict(said));
  EXPECT_EQ(steps_saved(), sound);
}

// As the message says to do: in a copy of the directory from its newest checkpoint, and without one
// from the first step. The schedule has the length of the whole run.
TEST_F(RunGuardTest, AStepThatStopsTheRunCanBeRepeatedToTheBit) {
  for (const std::string every : {"0", "4"}) {
    SCOPED_TRACE(every);
    const std::vector<std::string> command = {
        "--set", "train.steps=60",
        "--set", "schedule={kind=\"cosine\",learning_rate=3,warmup_steps=20}",
        "--set", "guard.loss_jump=2",
        "--set", "checkpoint.every=" + every};
    const std::string said = Fail(kSingle, command);
    EXPECT_THAT(said, HasSubstr("the loss jumps to "));
    const std::string losses = *ReadFile(Path("out/losses.csv"));
    const std::string how = said.substr(said.find("repeat "));
    std::vector<std::string> again = command;
    for (const auto word : absl::StrSplit(how, ' ')) {
      if (absl::StartsWith(word, "--set") || absl::StrContains(word, '=')) again.emplace_back(word);
    }
    EXPECT_EQ(absl::StrContains(how, "--resume"), every == "4");
    fs::remove_all(Path("copy"));
    if (every == "4") {
      fs::copy(Path("out"), Path("copy"), fs::copy_options::recursive);
      again.push_back("--resume");
    }
    again.insert(again.end(), {"--out", Path("copy")});
    EXPECT_THAT(RunProcess(Options(kSingle, again)).value().err, HasSubstr("the loss jumps to "));
    EXPECT_EQ(*ReadFile(Path("copy/losses.csv")), losses);
    EXPECT_TRUE(fs::exists(Path("copy/probes")));
  }
}

// Ranks that hold the same compare it, and find it so, on a mesh with replicas and without.
TEST_F(RunGuardTest, GuardedRunsHaveTheCurveOfOthers) {
  ASSERT_TRUE(Start(kDdp, {"--set", "mesh.dp=2"}).ok());
  const std::string losses = *ReadFile(Path("out/losses.csv"));
  const ProcessResult guarded =
      Start(kDdp, {"--set", "mesh.dp=2", "--set", "guard.every=1", "--set", "guard.loss_jump=10"});
  EXPECT_TRUE(guarded.ok()) << guarded.err;
  EXPECT_EQ(*ReadFile(Path("out/losses.csv")), losses);
  const auto summary = nlohmann::json::parse(*ReadFile(Path("out/summary.json")));
  EXPECT_EQ(summary["guard"]["checked_steps"], std::ranges::count(losses, '\n') - 1);
  EXPECT_GT(summary["guard"]["seconds"], 0);
  EXPECT_THAT(guarded.out + guarded.err, HasSubstr("wrong bits: looked for in "));
}

}  // namespace
}  // namespace lockstep
