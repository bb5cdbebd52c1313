#include "core/config/trainer_flags.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/flags/reflection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class TrainerFlagsTest : public testing::Test {
 protected:
  TrainerFlagsTest() {
    unsetenv("LOCKSTEP_DATA");
    setenv("BUILD_WORKING_DIRECTORY", "/home/user", 1);
  }

  static absl::StatusOr<CommandLine> Parse(std::vector<std::string> arguments) {
    const absl::FlagSaver saver;
    std::vector<char*> argv = {const_cast<char*>("ddp")};
    for (std::string& argument : arguments) argv.push_back(argument.data());
    return ParseCommandLine(static_cast<int>(argv.size()), argv.data());
  }
  static std::string Problem(const std::vector<std::string>& arguments) {
    return std::string(Parse(arguments).status().message());
  }
};

TEST_F(TrainerFlagsTest, ReadsEverything) {
  const auto line =
      Parse({"--config", "/a.toml", "--set", "train.steps=3", "--config=b.toml", "--set=mesh.dp=2",
             "--out", "here", "--data=/data", "--device", "cuda", "--resume"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(line->configs, ElementsAre("/a.toml", "/home/user/b.toml"));
  EXPECT_THAT(line->assignments, ElementsAre("train.steps=3", "mesh.dp=2"));
  EXPECT_EQ(line->out, "/home/user/here");
  EXPECT_EQ(line->data, "/data");
  EXPECT_EQ(line->device, DeviceType::kCuda);
  EXPECT_TRUE(line->resume);
  EXPECT_FALSE(line->help);
}

TEST_F(TrainerFlagsTest, LegsAreAssignmentsThatOthersReplace) {
  const auto line = Parse({"--set", "train.steps=9", "--legs", "4: ddp dp=2; 2: single"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(line->assignments, ElementsAre("train.legs=[\"4: ddp dp=2\", \"2: single\"]",
                                             "train.steps=6", "train.steps=9"));
  EXPECT_THAT(Problem({"--legs", "ddp"}), HasSubstr("--legs: 'ddp' does not begin"));
}

TEST_F(TrainerFlagsTest, NothingIsTheDefault) {
  const auto line = Parse({});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(line->configs, IsEmpty());
  EXPECT_THAT(line->assignments, IsEmpty());
  EXPECT_EQ(line->out + line->data, "");
  EXPECT_EQ(line->device, DeviceType::kCpu);
  EXPECT_FALSE(line->resume);
  setenv("LOCKSTEP_DATA", "data", 1);
  EXPECT_EQ(Parse({})->data, "/home/user/data");
  EXPECT_EQ(Parse({"--data=/other"})->data, "/other");
}

TEST_F(TrainerFlagsTest, RefusesWhatIsNoTrainersFlag) {
  EXPECT_THAT(Problem({"--resum"}), HasSubstr("did you mean --resume?"));
  EXPECT_THAT(Problem({"train.steps=3"}), HasSubstr("'train.steps=3' belongs to no option"));
  EXPECT_THAT(Problem({"--resume=1"}), HasSubstr("--resume takes no value"));
  EXPECT_THAT(Problem({"--device", "gpu"}), HasSubstr("use cpu or cuda"));
}

TEST_F(TrainerFlagsTest, HelpListsAllFlags) {
  EXPECT_TRUE(Parse({"--help"})->help);
  EXPECT_THAT(Usage("ddp"),
              AllOf(HasSubstr("Trains a model with the strategy 'ddp'.\n"),
                    HasSubstr("--config VALUE"), HasSubstr("--set VALUE"), HasSubstr("--out VALUE"),
                    HasSubstr("--data VALUE"), HasSubstr("cpu or cuda; default cpu"),
                    HasSubstr("--resume "), Not(HasSubstr("flagfile"))));
}

}  // namespace
}  // namespace lockstep
