// The search in a made-up repository, whose build and training are small scripts in its commits.

#include "tools/curve/bisection.h"

#include <unistd.h>  // usleep

#include <algorithm>
#include <csignal>
#include <cstdlib>  // setenv
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/file.h"
#include "core/base/subprocess.h"
#include "core/checkpoint/tensor_slice.h"
#include "core/probe/probe_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/curve/commit_search.h"
#include "tools/experiment/paths.h"
#include "tools/report/text.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

// What stands for Bazel: "builds" what the commit's file `state` says.
constexpr char kBazel[] = R"(#!/bin/sh
base=${1#--output_base=}
shift
if [ "$1" = clean ]; then
  rm -rf "$base"
  exit 0
fi
here=$(dirname "$0")
. "$here/state"
if [ "$broken" = yes ]; then
  echo "INFO: analysed" >&2
  echo "ERROR: kernel.cc:7: expected ;" >&2
  exit 1
fi
if [ "$broken" = slow ]; then
  touch "$BISECTION_TEST_MARK"
  exec sleep 100
fi
mkdir -p "$here/bazel-bin/experiments/tiny"
cp "$here/state" "$here/bazel-bin/state"
cp "$here/train" "$here/bazel-bin/experiments/tiny/single"
)";

// What stands for a training program: losses, and probes that the test has written before.
constexpr char kTrain[] = R"(#!/bin/sh
. "$(dirname "$0")/../../state"
probes=no
for argument in "$@"; do
  case "$argument" in
    train.steps=*) steps=${argument#train.steps=} ;;
    probe.steps=*) probes=yes ;;
  esac
  out=$argument
done
if [ "$curve" = crash ]; then
  echo "out of range" >&2
  exit 1
fi
mkdir -p "$out"
if [ $probes = yes ]; then
  if [ "$knows_probes" = no ]; then
    echo "unknown key probe.steps" >&2
    exit 1
  fi
  cp -r "$BISECTION_TEST_PROBES/$curve/probes" "$out/probes"
fi
echo step,loss >"$out/losses.csv"
step=0
while [ $step -lt $steps ]; do
  loss=2.5
  if [ "$curve" != good ] && [ $step -ge 3 ]; then loss=2.25; fi
  echo $step,$loss >>"$out/losses.csv"
  step=$((step + 1))
done
)";

struct State {
  std::string curve = "good";
  std::string broken = "no";
  std::string knows_probes = "yes";
};

class BisectionTest : public testing::Test {
 protected:
  BisectionTest() : folder_(testing::TempDir() + "/repository") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ + "/experiments/tiny");
    setenv("BISECTION_TEST_MARK", (testing::TempDir() + "/building").c_str(), 1);
    setenv("BISECTION_TEST_PROBES", (testing::TempDir() + "/probed").c_str(), 1);
    std::filesystem::remove(testing::TempDir() + "/building");
    Git({"init", "--quiet", "--initial-branch=main"});
    Write("bazelw", kBazel, true);
    Write("train", kTrain, true);
    Write("experiments/tiny/workload.toml", "name = \"tiny\"\n");
    Commit("begin");
  }

  void Write(const std::string& name, const std::string& contents, bool is_program = false) {
    const std::string path = absl::StrCat(folder_, "/", name);
    ASSERT_TRUE(WriteFileAtomically(path, contents).ok());
    if (is_program) std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }

  std::string Git(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {FindOnPath("git"), "-C", folder_, "-c", "user.name=Test",
                                         "-c", "user.email=test@example.com"});
    const absl::StatusOr<ProcessResult> result = RunProcess({.arguments = std::move(arguments)});
    EXPECT_TRUE(result.ok() && result->ok()) << (result.ok() ? result->err : "no git");
    return result.ok() ? result->out : "";
  }

  // Returns the commit's name.
  std::string Commit(const std::string& subject, const State& state = {}) {
    Write("state", absl::StrCat("curve=", state.curve, "\nbroken=", state.broken,
                                "\nknows_probes=", state.knows_probes, "\n# ", subject, "\n"));
    Git({"add", "."});
    Git({"commit", "--quiet", "-m", subject});
    std::string name = Git({"rev-parse", "HEAD"});
    name.resize(40);
    return name;
  }

  BisectionOptions Options(const std::string& good) const {
    return {
        .repository = folder_, .good = good, .workload = "tiny", .strategy = "single", .steps = 5};
  }

  BisectionHooks Hooks() {
    return {.run =
                [this](const ProcessOptions& options) {
                  const std::string command = absl::StrJoin(options.arguments, " ");
                  if (absl::StrContains(command, " build ")) ++builds_;
                  // With the build, what tidies up first gets the signal, too.
                  const bool tidies = absl::StrContains(command, " clean ") ||
                                      absl::StrContains(command, " worktree remove ");
                  if (builds_ == interrupted_build_ &&
                      (tidies || absl::StrContains(command, " build "))) {
                    ProcessResult interrupted;
                    interrupted.signal = SIGINT;
                    interrupted.interrupted = true;
                    return absl::StatusOr<ProcessResult>(interrupted);
                  }
                  return RunProcess(options);
                },
            .say = [this](const std::string& line) { said_.push_back(line); }};
  }

  std::string Found(const BisectionOptions& options) {
    const absl::StatusOr<Report> report = Bisect(options, Hooks());
    ExpectNothingLeft();
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? TextOf(*report) : "";
  }

  std::string ErrorOf(const BisectionOptions& options) {
    const absl::StatusOr<Report> report = Bisect(options, Hooks());
    ExpectNothingLeft();
    EXPECT_FALSE(report.ok());
    return std::string(report.status().message());
  }

  // One work tree, no temporary folder, and the checkout as it was.
  void ExpectNothingLeft() {
    const std::string trees = Git({"worktree", "list"});
    EXPECT_EQ(std::ranges::count(trees, '\n'), 1) << trees;
    EXPECT_THAT(ListFolder(testing::TempDir()).value(), Each(Not(HasSubstr("lockstep-"))));
  }

  // Probes of a run whose layer has these elements.
  static void WriteProbes(const std::string& curve, const std::vector<float>& elements) {
    const std::string folder = absl::StrCat(testing::TempDir(), "/probed/", curve, "/probes");
    std::filesystem::remove_all(folder);
    const ProbeHeader header = {
        .program = "lockstep single", .workload = "tiny", .model = "m", .blocks = {"block"}};
    absl::StatusOr<ProbeWriter> writer = ProbeWriter::Open(folder, header, /*with_values=*/true);
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (const auto& [place, values] : {std::pair("batch.inputs", std::vector<float>{1, 2}),
                                        std::pair("block.layer", elements)}) {
      ASSERT_TRUE(writer
                      ->Add({.place = place, .number = 0, .held = WholeSlice({std::ssize(values)})},
                            reinterpret_cast<const uint8_t*>(values.data()))
                      .ok());
    }
    ASSERT_TRUE(writer->Commit().ok());
  }

  const std::string folder_;
  int builds_ = 0;
  int interrupted_build_ = -1;
  std::vector<std::string> said_;
};

TEST_F(BisectionTest, FindsTheCommitInFewTrials) {
  const std::string good = Commit("good one");
  for (int i = 0; i < 9; ++i) Commit(absl::StrCat("harmless ", i));
  Commit("Scale the loss twice", {.curve = "bad"});
  for (int i = 0; i < 5; ++i) Commit(absl::StrCat("later ", i), {.curve = "bad"});
  const std::string text = Found(Options(good));
  EXPECT_THAT(text, HasSubstr("Scale the loss twice"));
  EXPECT_THAT(text, HasSubstr("step 3: 2.25, expected 2.5 (relative difference 1.00e-01)"));
  // Both ends, at most four between them, and the parent for probes, which are missing.
  EXPECT_LE(builds_, 8);
  EXPECT_THAT(said_, Contains(HasSubstr("15 commits left, about 4 trials")));
}

// The search alone, wherever the curve moved and whichever commits do not build.
TEST_F(BisectionTest, TheSearchIsRightForEveryPlaceAndEveryHole) {
  std::vector<std::string> commits = {Commit("0")};
  constexpr int kCommits = 11;
  for (int i = 1; i < kCommits; ++i) commits.push_back(Commit(absl::StrCat(i)));
  const GitHistory history = GitHistory::Open(folder_).value();
  for (int moved = 1; moved < kCommits; ++moved) {
    for (int hole = 0; hole < kCommits; ++hole) {  // commits hole and hole + 1; 0: none
      const auto is_hole = [hole](int at) {
        return hole > 0 && (at == hole || at == hole + 1) && at < kCommits - 1;
      };
      const absl::StatusOr<FoundCommit> found = FindFirstMoved(
          history, commits[0], commits.back(), HistoryWalk::kAllCommits,
          [&](const CommitTrial& trial) -> absl::StatusOr<CommitVerdict> {
            const int at =
                static_cast<int>(std::ranges::find(commits, trial.commit) - commits.begin());
            if (is_hole(at)) return CommitVerdict::kSkipped;
            return at >= moved ? CommitVerdict::kMoved : CommitVerdict::kAsGood;
          });
      ASSERT_TRUE(found.ok()) << found.status();
      std::set<std::string> possible(found->untried.begin(), found->untried.end());
      possible.insert(found->commit);
      int first = moved, last = moved;  // what nobody can tell apart from the one that moved it
      while (is_hole(last)) ++last;
      while (is_hole(first - 1)) --first;
      EXPECT_EQ(possible,
                std::set<std::string>(commits.begin() + first, commits.begin() + last + 1))
          << "moved at " << moved << ", hole at " << hole;
      EXPECT_EQ(found->commit, commits[last]);
    }
  }
}

TEST_F(BisectionTest, SkipsCommitsThatDoNotBuildOrRun) {
  const std::string good = Commit("good one");
  Commit("harmless");
  Commit("half a change", {.broken = "yes"});
  Commit("a crash", {.curve = "crash"});
  Commit("whole again");
  Commit("Round the mean", {.curve = "bad"});
  Commit("later", {.curve = "bad"});
  const std::string text = Found(Options(good));
  EXPECT_THAT(text, AllOf(HasSubstr("Round the mean"), Not(HasSubstr("It may have been"))));
  EXPECT_THAT(said_, Contains(HasSubstr("skipped after")));
}

TEST_F(BisectionTest, NamesUntriedCommitsBeforeTheOneThatMoved) {
  WriteProbes("good", {1, 2, 3});
  WriteProbes("bad", {2, 4, 6});
  const std::string good = Commit("good one");
  Commit("half a change", {.broken = "yes"});
  Commit("a crash", {.curve = "crash"});
  Commit("the rest", {.curve = "bad"});
  const std::string text = Found(Options(good));
  EXPECT_THAT(text, AllOf(HasSubstr("the rest"), HasSubstr("It may have been"),
                          HasSubstr("half a change"), HasSubstr("a crash"),
                          HasSubstr("2 between good and bad; 2 could not be built or run")));
  EXPECT_THAT(said_, Contains(HasSubstr("does not build: ERROR: kernel.cc:7: expected ;")));
  EXPECT_THAT(said_, Contains(HasSubstr("does not run: out of range")));
  // The parent has no probes, but the good commit has.
  EXPECT_THAT(text, HasSubstr("forward of block.layer"));
}

TEST_F(BisectionTest, FollowsSideBranchesUnlessToldNotTo) {
  const std::string good = Commit("good one");
  Git({"checkout", "--quiet", "-b", "side"});
  Commit("harmless on the side");
  Commit("Swap two shards", {.curve = "bad"});
  Git({"checkout", "--quiet", "main"});
  Git({"merge", "--quiet", "--no-ff", "-m", "Merge the side branch", "side"});
  Commit("later", {.curve = "bad"});
  BisectionOptions options = Options(good);
  EXPECT_THAT(Found(options), HasSubstr("Swap two shards"));
  options.walk = HistoryWalk::kFirstParent;
  EXPECT_THAT(Found(options), HasSubstr("Merge the side branch"));
}

TEST_F(BisectionTest, NamesTheFirstTensorThatDiffers) {
  WriteProbes("good", {1, 2, 3});
  WriteProbes("bad", {2, 4, 6});
  const std::string good = Commit("good one");
  Commit("Scale the layer", {.curve = "bad"});
  EXPECT_THAT(Found(Options(good)),
              AllOf(HasSubstr("step 1, micro-batch 0, forward of block.layer"),
                    HasSubstr("forward of batch.inputs"), HasSubstr("A times 2"),
                    HasSubstr("Scale the layer")));
}

TEST_F(BisectionTest, SaysWhereACommitHasNoProbes) {
  WriteProbes("bad", {2, 4, 6});
  const std::string good = Commit("good one", {.knows_probes = "no"});
  Commit("Add probes", {.curve = "bad"});
  EXPECT_THAT(Found(Options(good)),
              AllOf(HasSubstr("good one"), HasSubstr("has no probes: unknown key probe.steps")));
}

TEST_F(BisectionTest, RefusesWhatItCannotSearch) {
  const std::string good = Commit("good one");
  Commit("harmless");
  EXPECT_THAT(ErrorOf(Options("v9.9")), HasSubstr("'v9.9' names no commit of "));
  EXPECT_THAT(ErrorOf(Options("--all")), HasSubstr("'--all' names no commit of "));
  EXPECT_THAT(ErrorOf(Options("HEAD")), HasSubstr("there is nothing to search"));
  EXPECT_THAT(ErrorOf(Options(good)),
              HasSubstr("good and bad have the same losses, to the bit, in all 5 steps of tiny "
                        "under single"));
  BisectionOptions options = Options(good);
  options.workload = "tinny";
  EXPECT_THAT(ErrorOf(options),
              HasSubstr("at " + good + " there is no workload 'tinny'; experiments/ has tiny"));
  options = Options("HEAD");
  options.bad = good;
  EXPECT_THAT(ErrorOf(options), HasSubstr("--good HEAD is no ancestor of " + good));
  Write("state", "curve=bad\n");
  EXPECT_THAT(ErrorOf(Options(good)), HasSubstr("has changes that are in no commit (state)"));
  Git({"checkout", "--quiet", "state"});
  Commit("half a change", {.broken = "yes"});
  EXPECT_THAT(ErrorOf(Options(good)),
              AllOf(HasSubstr("the bad commit"), HasSubstr("half a change"),
                    HasSubstr("does not build: ERROR: kernel.cc:7: expected ;")));
}

TEST_F(BisectionTest, RefusesFoldersThatAreNoRepositoryOfOurs) {
  const std::string empty = testing::TempDir() + "/empty";
  std::filesystem::create_directories(empty);
  BisectionOptions options = Options("HEAD");
  options.repository = empty;
  // Where the folder for tests lies inside a repository, git finds that one.
  setenv("GIT_CEILING_DIRECTORIES", testing::TempDir().c_str(), 1);
  EXPECT_THAT(ErrorOf(options), HasSubstr("is in no work tree of git"));
  Git({"rm", "-r", "--quiet", "experiments"});
  Git({"commit", "--quiet", "-m", "another project"});
  EXPECT_THAT(ErrorOf(Options("HEAD")), HasSubstr("is no repository of Lockstep"));
}

TEST_F(BisectionTest, TidiesUpWhenABuildIsInterrupted) {
  const std::string good = Commit("good one");
  for (int i = 0; i < 4; ++i) Commit(absl::StrCat("later ", i), {.curve = "bad"});
  interrupted_build_ = 3;
  const absl::StatusOr<Report> report = Bisect(Options(good), Hooks());
  EXPECT_TRUE(absl::IsCancelled(report.status())) << report.status();
  ExpectNothingLeft();
}

// The program itself, and a real signal.
TEST_F(BisectionTest, TidiesUpOnCtrlC) {
  const std::string good = Commit("good one");
  Commit("slow to build", {.broken = "slow"});
  absl::StatusOr<Subprocess> process =
      Subprocess::Start({.arguments = {"tools/curve/bisect", "--repository", folder_, "--good",
                                       good, "--workload", "tiny"}});
  ASSERT_TRUE(process.ok()) << process.status();
  while (!PathExists(testing::TempDir() + "/building")) usleep(10'000);
  process->Signal(SIGINT);
  const ProcessResult result = process->Wait();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_THAT(result.err, HasSubstr("interrupted; nothing is left behind"));
  ExpectNothingLeft();
}

TEST_F(BisectionTest, TheProgramPrintsTheReport) {
  const std::string good = Commit("good one");
  Commit("Scale the loss", {.curve = "bad"});
  const auto run = [this](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"tools/curve/bisect", "--repository", folder_});
    return RunProcess({.arguments = std::move(arguments)}).value();
  };
  const ProcessResult found =
      run({"--good", good, "--workload", "tiny", "--strategy", "single", "--steps", "4"});
  EXPECT_EQ(found.exit_code, 0) << found.err;
  EXPECT_THAT(found.out, HasSubstr("Scale the loss"));
  EXPECT_THAT(run({"--workload", "tiny"}).err, HasSubstr("--good is needed"));
  EXPECT_THAT(run({"--good", good}).err, HasSubstr("--workload is needed"));
  EXPECT_THAT(run({"--good", good, "--workload", "tiny", "--steps", "0"}).err,
              HasSubstr("--steps 0: give a whole number"));
}

}  // namespace
}  // namespace lockstep
