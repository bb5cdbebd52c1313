#include "core/base/status.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

absl::Status Fail() { return absl::NotFoundError("no such thing"); }

TEST(ReturnIfError, PassesErrorsOnAndLetsOkThrough) {
  bool reached = false;
  auto run = [&](const absl::Status& status) -> absl::Status {
    LS_RETURN_IF_ERROR(status);
    reached = true;
    return absl::OkStatus();
  };
  EXPECT_EQ(run(Fail()), absl::NotFoundError("no such thing"));
  EXPECT_FALSE(reached);
  EXPECT_TRUE(run(absl::OkStatus()).ok());
  EXPECT_TRUE(reached);
}

TEST(ReturnIfError, EvaluatesOnceAndNestsInIfElse) {
  int calls = 0;
  auto count = [&](int, int) {
    ++calls;
    return absl::OkStatus();
  };
  auto run = [&](bool first) -> absl::Status {
    if (first)
      LS_RETURN_IF_ERROR(count(1, 2));
    else
      return Fail();
    return absl::OkStatus();
  };
  EXPECT_TRUE(run(true).ok());
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(run(false).ok());
}

absl::StatusOr<std::unique_ptr<int>> Box(int value) {
  if (value < 0) return absl::InvalidArgumentError("negative");
  return std::make_unique<int>(value);
}

absl::StatusOr<std::map<int, std::string>> Names() {
  return std::map<int, std::string>{{1, "one"}};
}

absl::StatusOr<std::pair<int, int>> Pair(int a, int b) { return std::make_pair(a, b); }

absl::StatusOr<int> Sum(int a, int b) {
  LS_ASSIGN_OR_RETURN(std::unique_ptr<int> x, Box(a));
  std::unique_ptr<int> y;
  LS_ASSIGN_OR_RETURN(y, Box(b));
  LS_ASSIGN_OR_RETURN((const std::map<int, std::string> names), Names());
  LS_ASSIGN_OR_RETURN((auto [first, second]), Pair(*x, *y));
  EXPECT_EQ(names.at(1), "one");
  return first + second;
}

TEST(AssignOrReturn, MovesValuesAndPassesErrorsOn) {
  EXPECT_EQ(Sum(2, 3).value(), 5);
  EXPECT_EQ(Sum(-1, 3).status(), absl::InvalidArgumentError("negative"));
  EXPECT_EQ(Sum(1, -3).status(), absl::InvalidArgumentError("negative"));
}

TEST(Annotate, PutsTheContextFirstAndKeepsCodeAndPayloads) {
  absl::Status status = absl::DataLossError("the file is short");
  status.SetPayload("bytes", absl::Cord("7"));
  absl::Status annotated = Annotate(status, "while reading a.bin");
  EXPECT_EQ(annotated.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(std::string(annotated.message()), "while reading a.bin: the file is short");
  EXPECT_EQ(annotated.GetPayload("bytes"), absl::Cord("7"));
  EXPECT_EQ(Annotate(absl::OkStatus(), "anything"), absl::OkStatus());
}

}  // namespace
}  // namespace lockstep
