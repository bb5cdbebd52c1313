#include "core/comm/launch.h"

#include <atomic>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "core/base/file.h"
#include "core/base/status.h"
#include "core/tensor/allocator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(RunRanksTest, RunsEachRankOnce) {
  std::atomic<int> seen = 0;
  const absl::Status status = RunRanks(5, {}, [&](RankHandle& handle) {
    EXPECT_EQ(handle.size(), 5);
    EXPECT_EQ(handle.ledger().rank(), handle.rank());
    EXPECT_EQ(&handle.comm().ledger(), &handle.ledger());
    seen += 1 << (4 * handle.rank());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(seen, 0x11111);
}

TEST(RunRanksTest, OneRankRunsOnTheCallingThread) {
  const std::thread::id caller = std::this_thread::get_id();
  const absl::Status status = RunRanks(1, {}, [&](RankHandle& handle) -> absl::Status {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    LS_RETURN_IF_ERROR(handle.comm().Barrier("alone").Wait());
    return absl::NotFoundError("no data");
  });
  EXPECT_EQ(status, absl::NotFoundError("no data"));
}

TEST(RunRanksTest, RefusesNoRanks) {
  EXPECT_EQ(RunRanks(0, {}, [](RankHandle&) { return absl::OkStatus(); }).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(RunRanksTest, ReturnsTheFirstCauseAndNotItsEchoes) {
  for (int failing = 0; failing < 3; ++failing) {
    const absl::Status status = RunRanks(3, {}, [&](RankHandle& handle) -> absl::Status {
      LS_RETURN_IF_ERROR(handle.comm().Barrier("start").Wait());
      if (handle.rank() == failing) return absl::NotFoundError("no data");
      return handle.comm().Barrier("end").Wait();
    });
    EXPECT_EQ(status, absl::NotFoundError("rank " + std::to_string(failing) + ": no data"));
  }
}

TEST(RunRanksTest, AFailureLeavesAPostMortem) {
  const std::string folder = testing::TempDir() + "/post_mortem";
  const absl::Status status = RunRanks(2, {.post_mortem = [&folder] { return folder; }},
                                       [](RankHandle& handle) -> absl::Status {
                                         LS_RETURN_IF_ERROR(handle.comm().Barrier("start").Wait());
                                         if (handle.rank() == 1)
                                           return absl::NotFoundError("no data");
                                         return handle.comm().Barrier("end").Wait();
                                       });
  EXPECT_FALSE(status.ok());
  for (const std::string rank : {"/rank0", "/rank1"}) {
    const auto text = ReadFile(folder + rank + ".txt");
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_THAT(*text, HasSubstr("rank 1 failed: no data. Last calls:"));
    EXPECT_THAT(*text, HasSubstr("barrier #0 of 'world' [0, 1] (\"start\")"));
    EXPECT_TRUE(nlohmann::json::accept(ReadFile(folder + rank + ".json").value_or("")));
  }
}

// There is no memory to make JSON of.
TEST(RunRanksTest, WithoutMemoryThePostMortemIsText) {
  const std::string folder = testing::TempDir() + "/post_mortem_without_memory";
  const absl::Status status = RunRanks(2, {.post_mortem = [&folder] { return folder; }},
                                       [](RankHandle&) -> absl::Status { throw std::bad_alloc(); });
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_TRUE(ReadFile(folder + "/rank0.txt").ok());
  EXPECT_FALSE(ReadFile(folder + "/rank0.json").ok());
}

TEST(RunRanksTest, CatchesExceptions) {
  const absl::Status status = RunRanks(2, {}, [](RankHandle& handle) -> absl::Status {
    if (handle.rank() == 1) throw std::runtime_error("diverged");
    return handle.comm().Barrier("end").Wait();
  });
  EXPECT_EQ(status, absl::InternalError("rank 1: uncaught exception: diverged"));
}

TEST(RunRanksTest, StatusExceptionsKeepTheirStatus) {
  const absl::Status status = RunRanks(2, {}, [](RankHandle& handle) -> absl::Status {
    if (handle.rank() == 0) throw StatusException(absl::ResourceExhaustedError("no memory"));
    return handle.comm().Barrier("end").Wait();
  });
  EXPECT_EQ(status, absl::ResourceExhaustedError("rank 0: no memory"));
}

// A work that the exception drops on its way fails the world first, but is not the cause.
TEST(RunRanksTest, ExceptionAmidCallsKeepsItsCause) {
  const absl::Status status = RunRanks(2, {}, [](RankHandle& handle) -> absl::Status {
    CpuAllocator allocator;
    const Tensor x = Tensor::Empty(allocator, {100'000}, DType::kU8, MemoryClass::kWorkspace);
    if (handle.rank() == 0) {
      const Work sent = handle.comm().Send(x, 1, "activations");
      throw StatusException(absl::ResourceExhaustedError("no memory"));
    }
    return handle.comm().Barrier("end").Wait();
  });
  EXPECT_EQ(status, absl::ResourceExhaustedError("rank 0: no memory"));
}

TEST(RunRanksTest, WhatWentWrongBetweenRanksIsNobodys) {
  const absl::Status status = RunRanks(2, {}, [](RankHandle& handle) -> absl::Status {
    return handle.comm().Barrier("end").Wait().ok() && handle.rank() == 0
               ? handle.comm().Barrier("once more").Wait()
               : absl::OkStatus();
  });
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 has left and will not come to "
                                                       "barrier #1"));
}

}  // namespace
}  // namespace lockstep
