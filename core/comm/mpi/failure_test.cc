#include "core/comm/mpi/failure.h"

#include "gtest/gtest.h"

namespace lockstep::mpi {
namespace {

TEST(FailureTest, NotesComeBackAsTheyWere) {
  const Note failure = {.kind = Note::Kind::kFailure,
                        .failure = Failure{.kind = Failure::Kind::kReported,
                                           .rank = 3,
                                           .cause = absl::DataLossError("a \"cut\"\nfile"),
                                           .noticed_by = 3},
                        .last_call = "all_reduce #3"};
  const auto decoded = DecodeNote(Encode(failure));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->kind, Note::Kind::kFailure);
  EXPECT_EQ(decoded->failure->kind, Failure::Kind::kReported);
  EXPECT_EQ(decoded->failure->rank, 3);
  EXPECT_EQ(decoded->failure->cause, failure.failure->cause);
  EXPECT_EQ(decoded->failure->noticed_by, 3);
  EXPECT_EQ(decoded->last_call, "all_reduce #3");

  const auto left = DecodeNote(
      Encode({.kind = Note::Kind::kLeft, .last_call = "no call yet", .succeeded = true}));
  ASSERT_TRUE(left.ok()) << left.status();
  EXPECT_EQ(left->kind, Note::Kind::kLeft);
  EXPECT_EQ(left->last_call, "no call yet");
  EXPECT_TRUE(left->succeeded);
}

TEST(FailureTest, OtherBytesAreRefused) {
  EXPECT_FALSE(DecodeNote({}).ok());
  std::vector<std::byte> bytes = Encode({.last_call = "x"});
  bytes.pop_back();
  EXPECT_EQ(DecodeNote(bytes).status().code(), absl::StatusCode::kDataLoss);
}

TEST(FailureTest, OnlyTheRankThatWentAwaySaysWhy) {
  const Failure dropped = {.kind = Failure::Kind::kDropped, .rank = 2};
  const Failure call = {.kind = Failure::Kind::kCall};
  EXPECT_TRUE((Failure{.kind = Failure::Kind::kReported, .rank = 2}).Explains(dropped));
  EXPECT_FALSE((Failure{.kind = Failure::Kind::kReported, .rank = 1}).Explains(dropped));
  EXPECT_FALSE((Failure{.kind = Failure::Kind::kReported, .rank = 2}).Explains(call));
  EXPECT_FALSE(call.Explains(dropped));
}

TEST(FailureTest, RanksChooseTheSameOfTwoFailures) {
  const Failure call = {.kind = Failure::Kind::kCall, .noticed_by = 2};
  const Failure lower = {.kind = Failure::Kind::kCall, .noticed_by = 0};
  const Failure dropped = {.kind = Failure::Kind::kDropped, .rank = 3, .noticed_by = 3};
  const Failure reported = {.kind = Failure::Kind::kReported, .rank = 4, .noticed_by = 4};
  const Failure stopped = {.kind = Failure::Kind::kStopped, .rank = 0, .noticed_by = 0};
  const std::vector<Failure> ordered = {reported, dropped, lower, call, stopped};
  for (size_t i = 0; i < ordered.size(); ++i) {
    for (size_t j = 0; j < ordered.size(); ++j) {
      EXPECT_EQ(ordered[i].GoesBefore(ordered[j]), i < j) << i << " " << j;
    }
  }
}

TEST(FailureTest, NamesTheRank) {
  const Failure failure = {
      .kind = Failure::Kind::kReported, .rank = 2, .cause = absl::DataLossError("cut short")};
  EXPECT_EQ(failure.ForAll(), absl::DataLossError("rank 2 failed: cut short"));
}

}  // namespace
}  // namespace lockstep::mpi
