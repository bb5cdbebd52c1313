#include "core/config/legs.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LegsTest, ALegHasStepsAStrategyAndKeys) {
  const auto leg = Leg::Parse("150: fsdp dp=2  tp=4 pipeline.schedule=zb_h1");
  ASSERT_TRUE(leg.ok()) << leg.status();
  EXPECT_EQ(leg->steps, 150);
  EXPECT_EQ(leg->formation.strategy, "fsdp");
  EXPECT_THAT(leg->formation.assignments,
              ElementsAre("mesh.dp=2", "mesh.tp=4", "pipeline.schedule=zb_h1"));
  EXPECT_EQ(leg->formation.ToString(), "fsdp mesh.dp=2 mesh.tp=4 pipeline.schedule=zb_h1");
  EXPECT_EQ(Formation::Parse(leg->formation.ToString()).value(), leg->formation);
  EXPECT_THAT(Formation::Parse("ep dp=4 ep=2")->assignments, ElementsAre("mesh.dp=4", "mesh.ep=2"));
}

TEST(LegsTest, TheCommandLineBecomesAssignments) {
  EXPECT_THAT(AssignmentsOfLegs("100: ddp dp=4; 50:single").value(),
              ElementsAre("train.legs=[\"100: ddp dp=4\", \"50:single\"]", "train.steps=150"));
}

TEST(LegsTest, TheConfigurationNamesThem) {
  const Config config =
      Config::FromString("[train]\nlegs = [\"3: ddp dp=2\", \"1: single\"]", "a.toml").value();
  const std::vector<Leg> legs = ReadLegs(config).value();
  ASSERT_EQ(legs.size(), 2u);
  EXPECT_EQ(legs[0], Leg::Parse("3: ddp dp=2").value());
  EXPECT_EQ(legs[1], Leg::Parse("1: single").value());
  EXPECT_TRUE(ReadLegs(Config()).value().empty());
}

TEST(LegsTest, WhatCannotBeReadIsNamed) {
  const auto message = [](const std::string& text) {
    return std::string(AssignmentsOfLegs(text).status().message());
  };
  EXPECT_THAT(message("ddp dp=4"), HasSubstr("'ddp dp=4' does not begin with its number of steps"));
  EXPECT_THAT(message("0: ddp"), HasSubstr("number of steps"));
  EXPECT_THAT(message("5: ddp; 5: "), HasSubstr("names no strategy"));
  EXPECT_THAT(message("5: dp=4"), HasSubstr("names no strategy"));
  EXPECT_THAT(message("5: ddp 4"), HasSubstr("'4' is no axis of the mesh"));
  EXPECT_THAT(message("5: ddp dp="), HasSubstr("'dp=' is no axis of the mesh"));
  // What would change the curve.
  EXPECT_THAT(message("5: ddp cut.shards=8"), HasSubstr("'cut.shards=8' is no axis"));
  const Config config =
      Config::FromString("[train]\nlegs = [\"3: ddp\", \"oops\"]", "a.toml").value();
  EXPECT_THAT(std::string(ReadLegs(config).status().message()), HasSubstr("train.legs: 'oops'"));
}

}  // namespace
}  // namespace lockstep
