#include "tools/bench/mpi_peer.h"

#include <cstdlib>  // setenv
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TimedCall Call(Operation operation, int64_t bytes) {
  return CallOfSize(operation, DType::kF32, 2, bytes, false);
}

TEST(MpiPeerTest, LinesAreReadBackAmongOthers) {
  const auto times = ParseMpiTimes(
      absl::StrCat("a word of Open MPI\n", MpiTimesLine(Call(Operation::kAllReduce, 4096), 2.5e-6),
                   "\n", MpiTimesLine(Call(Operation::kSend, 8), 3e-7), "\n"));
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_EQ(SecondsOf(Call(Operation::kAllReduce, 4096), *times), 2.5e-6);
  EXPECT_EQ(SecondsOf(Call(Operation::kSend, 8), *times), 3e-7);
  EXPECT_EQ(SecondsOf(Call(Operation::kSend, 4096), *times), 0);
  EXPECT_EQ(SecondsOf(Call(Operation::kReduce, 4096), *times), 0);
}

TEST(MpiPeerTest, ABrokenLineIsAnError) {
  EXPECT_THAT(std::string(ParseMpiTimes("mpi_collectives,all_reduce,4096,fast").status().message()),
              HasSubstr("all_reduce,4096,fast"));
  EXPECT_FALSE(ParseMpiTimes("mpi_collectives,all_reduce").ok());
}

TEST(MpiPeerTest, WhatIsMissingIsNamed) {
  EXPECT_THAT(std::string(FindMpirun("/nowhere/mpirun").status().message()),
              HasSubstr("/nowhere/mpirun"));
  ASSERT_EQ(setenv("PATH", "/nowhere", 1), 0);
  EXPECT_THAT(std::string(FindMpirun("").status().message()), HasSubstr("no mpirun on PATH"));
  EXPECT_EQ(*FindMpirun("/bin/sh"), "/bin/sh");
}

}  // namespace
}  // namespace lockstep
