// Runs with legs, and stopped runs, as processes under mpirun.

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/subprocess.h"
#include "core/run/stop/run_signals.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "strategies/testing/launched_run.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTables[] = R"([train]
steps = 6
clip_norm = 1.0
[cut]
shards = 2
micro_batches = 2
tokens = 2
features = 2
)";

// The ranks that have an event of that name in a trace.json.
std::set<int> RanksThatTraced(const std::string& name, const std::string& trace) {
  std::set<int> ranks;
  const nlohmann::json document = nlohmann::json::parse(trace);
  for (const nlohmann::json& event : document.at("traceEvents")) {
    if (event.at("name") == name) ranks.insert(event.at("pid").get<int>());
  }
  return ranks;
}

class LegsMpiTest : public LaunchedRunTest {
 protected:
  LegsMpiTest() : LaunchedRunTest("strategies/mesh/main", LaunchedGpt(2, kTables)) {}
};

TEST_F(LegsMpiTest, ProcessesThatALegLeavesIdleComeBack) {
  const ProcessResult single = RunProgram("strategies/single/main", {}, "single");
  ASSERT_TRUE(single.ok()) << single.err;
  const ProcessResult legs =
      Run(MpiRun(4), "legs",
          {"--legs", "2: fsdp dp=2 tp=2; 1: single; 2: gpipe pp=2 dp=2; 1: ddp dp=2"});
  ASSERT_TRUE(legs.ok()) << legs.err;
  EXPECT_EQ(File("legs/losses.csv"), File("single/losses.csv"));
  const nlohmann::json summary = Summary("legs");
  EXPECT_EQ(summary["parameter_hash"], Summary("single")["parameter_hash"]);
  EXPECT_EQ(summary["ranks"], 2);
  // Four ranks trained step 4, and the last leg has two of them.
  EXPECT_THAT(RanksThatTraced("step 4", File("legs/trace.json")), ElementsAre(0, 1, 2, 3));
  ASSERT_EQ(summary["changes_of_mesh"].size(), 3u);
  for (const nlohmann::json& change : summary["changes_of_mesh"]) {
    EXPECT_EQ(change["bytes"]["predicted"], change["bytes"]["measured"]) << change;
  }
  EXPECT_GT(summary["changes_of_mesh"][0]["bytes"]["measured"], 0);
  const ProcessResult few = Run(MpiRun(2), "few", {"--legs", "3: ddp dp=2; 3: fsdp dp=2 tp=2"});
  EXPECT_FALSE(few.ok());
  EXPECT_THAT(few.err, HasSubstr("the largest mesh of train.legs has 4 ranks, but the launcher has "
                                 "started 2 processes"));
}

// A signal to one of the processes, which a leg may have left idle: all stop after the same step.
TEST_F(LegsMpiTest, ASignalToOneProcessStopsAllWithACheckpoint) {
  const std::vector<std::string> length = {"--set", "train.steps=400", "--set",
                                           "schedule.total_steps=400"};
  const std::vector<std::string> both = {"--set", "mesh.dp=2"};
  const std::vector<std::string> first_alone = {"--legs", "10: ddp dp=2; 390: single"};
  const auto with = [&length](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = length;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  const ProcessResult undisturbed = Run(MpiRun(2), "undisturbed", with(both));
  ASSERT_TRUE(undisturbed.ok()) << undisturbed.err;
  for (const auto& [signal, ranks] : {std::pair(std::string("USR1"), both),
                                      {"INT", both},
                                      {"HUP", both},
                                      {"USR1", first_alone}}) {
    SCOPED_TRACE(absl::StrCat(signal, " ", ranks.back()));
    const std::vector<std::string> steps = with(ranks);
    const std::string out = absl::StrCat("out_", signal, ranks == both ? "" : "_idle");
    const std::string program = absl::StrCat(
        "if [ $OMPI_COMM_WORLD_RANK = 1 ]; then (until [ \"$(wc -l < ", path(out + "/losses.csv"),
        ")\" -gt 20 ]; do sleep 0.02; done; kill -", signal, " $$) 2>/dev/null & fi; exec \"$@\"");
    std::vector<std::string> launcher = MpiRun(2);
    launcher.insert(launcher.end(), {"/bin/sh", "-c", program, "sh"});
    const ProcessResult stopped = Run(launcher, out, steps);
    EXPECT_EQ(stopped.exit_code, kStoppedExitCode) << stopped.Describe() << stopped.err;
    EXPECT_THAT(stopped.err, HasSubstr(" of 400; its checkpoint is whole: --resume goes on"));
    EXPECT_NE(File(out + "/losses.csv"), File("undisturbed/losses.csv"));
    std::vector<std::string> rest = steps;
    rest.push_back("--resume");
    const ProcessResult resumed = Run(MpiRun(2), out, rest);
    ASSERT_TRUE(resumed.ok()) << resumed.err;
    EXPECT_EQ(File(out + "/losses.csv"), File("undisturbed/losses.csv"));
    EXPECT_EQ(Summary(out)["parameter_hash"], Summary("undisturbed")["parameter_hash"]);
  }
}

// The first process is halted amid a step, while the idle one hears the signal.
TEST_F(LegsMpiTest, ASignalToAnIdleProcessEndsTheStepThatTheOthersTrain) {
  for (const char* who : {"the idle one", "both"}) {
    SCOPED_TRACE(who);
    const std::string out = who == std::string("both") ? "both" : "idle";
    const std::string losses = path(out + "/losses.csv"), first = path(out + ".pid");
    const std::string signals =
        absl::StrCat("until [ \"$(wc -l < ", losses, ")\" -gt 20 ]; do sleep 0.02; done; ",
                     "kill -STOP $(cat ", first, "); wc -l < ", losses, " > ", path(out + ".rows"),
                     "; kill -USR1 $$; ", out == "both" ? "kill -USR1 $(cat " + first + "); " : "",
                     "sleep 0.5; kill -CONT $(cat ", first, ")");
    const std::string program =
        absl::StrCat("if [ $OMPI_COMM_WORLD_RANK = 1 ]; then (", signals,
                     ") 2>/dev/null & else echo $$ > ", first, "; fi; exec \"$@\"");
    std::vector<std::string> launcher = MpiRun(2);
    launcher.insert(launcher.end(), {"/bin/sh", "-c", program, "sh"});
    const ProcessResult stopped =
        Run(launcher, out, {"--legs", "400: single; 1: ddp dp=2", "--set", "checkpoint.every=0"});
    EXPECT_EQ(stopped.exit_code, kStoppedExitCode) << stopped.Describe() << stopped.err;
    const std::string text = File(out + "/losses.csv");
    const auto rows = std::count(text.begin(), text.end(), '\n');
    EXPECT_LE(rows, std::stoll(File(out + ".rows")) + 1);  // the step that was halted
    EXPECT_THAT(stopped.err, HasSubstr(absl::StrCat("stopped after step ", rows - 1, " of 401; ")));
    EXPECT_THAT(stopped.err, Not(HasSubstr("stopping after step")));
    const std::string notice = "stopping after the step that is being trained";
    const size_t at = stopped.err.find(notice);
    EXPECT_EQ(at != std::string::npos, out == "both") << stopped.err;
    if (at != std::string::npos) {
      EXPECT_EQ(stopped.err.find(notice, at + 1), std::string::npos) << stopped.err;
    }
  }
}

}  // namespace
}  // namespace lockstep
