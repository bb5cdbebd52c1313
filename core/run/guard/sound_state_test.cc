#include "core/run/guard/sound_state.h"

#include <atomic>
#include <string>

#include "core/comm/launch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

absl::Status Keep(const SoundState::Suspects& /*suspects*/) { return absl::OkStatus(); }

TEST(SoundStateTest, WhatIsSoundDependsOnWhatWasFound) {
  SoundState state({.every = 10, .steps = 95}, Keep);
  state.Checked(7);  // no check was due
  EXPECT_EQ(state.checked_steps(), 0);
  state.Checked(10);
  state.Compared(14);
  EXPECT_EQ(state.checked_steps(), 10);
  EXPECT_EQ(state.SinceCheck().sound_steps, 10);
  EXPECT_EQ(state.SinceComparison().sound_steps, 14);
  EXPECT_EQ(state.BehindCheck().sound_steps, 9);
  EXPECT_EQ(SoundState::BehindCopy(14).sound_steps, 13);
  EXPECT_TRUE(SoundState::BehindCopy(14).are_copies_sound);
  state.Checked(20);
  EXPECT_EQ(state.SinceComparison().sound_steps, 20);
  state.Checked(95);  // the last one
  EXPECT_EQ(state.checked_steps(), 95);
  EXPECT_EQ(SoundState({}, Keep).checked_steps(), std::nullopt);
}

// An attempt knows what the one before had checked.
TEST(SoundStateTest, AResumedRunIsAsSuspectAsItsCheckpoint) {
  SoundState state({.every = 10, .steps = 95}, Keep);
  state.Resumed(/*steps=*/27, /*checked_steps=*/20);
  EXPECT_EQ(state.SinceCheck().sound_steps, 20);
  EXPECT_EQ(state.SinceComparison().sound_steps, 27);
}

TEST(SoundStateTest, AllRanksSetAsideBeforeOneTells) {
  std::atomic<int> aside = 0;
  const absl::Status status = RunRanks(3, {}, [&](RankHandle& handle) {
    SoundState state({.every = 1}, [&](const SoundState::Suspects& suspects) {
      EXPECT_EQ(suspects.sound_steps, 4);
      ++aside;
      return absl::OkStatus();
    });
    state.Checked(4);
    EXPECT_EQ(state.Agree(absl::OkStatus(), state.SinceCheck(), handle.comm()), absl::OkStatus());
    EXPECT_EQ(aside, 0);
    EXPECT_TRUE(handle.comm().Barrier("test").Wait().ok());
    const absl::Status own =
        handle.rank() == 1 ? absl::DataLossError("wrong bits") : absl::OkStatus();
    const absl::Status told = state.Agree(own, state.SinceCheck(), handle.comm());
    EXPECT_TRUE(handle.rank() != 1 || aside == 3) << aside;
    return told;
  });
  EXPECT_EQ(status, absl::DataLossError("rank 1: wrong bits"));
}

TEST(SoundStateTest, WhatCannotBeSetAsideIsTold) {
  const absl::Status status = RunRanks(2, {}, [&](RankHandle& handle) {
    const SoundState state({.every = 1}, [&](const SoundState::Suspects&) {
      return handle.rank() == 0 ? absl::FailedPreconditionError("read-only") : absl::OkStatus();
    });
    return state.Agree(absl::DataLossError("wrong bits"), state.SinceCheck(), handle.comm());
  });
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("read-only"));
}

}  // namespace
}  // namespace lockstep
