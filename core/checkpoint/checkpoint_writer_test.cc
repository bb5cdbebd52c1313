#include "core/checkpoint/checkpoint_writer.h"

#include <atomic>
#include <filesystem>
#include <functional>
#include <future>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/comm/launch.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kRanks = 2;
constexpr int64_t kElements = 1024;  // of each rank

// What each rank does, with a state of half a vector.
struct RankState {
  CpuAllocator allocator;
  CpuKernels kernels{allocator};
  std::vector<StateTensor> state;

  explicit RankState(int rank) {
    state = {{.name = "w",
              .tensor = kernels.Empty({kElements}),
              .full_shape = {kRanks * kElements},
              .first = rank * kElements}};
  }
  void Fill(float value) { kernels.Fill(state[0].tensor, value); }
};

class CheckpointWriterTest : public testing::TestWithParam<CheckpointFiles> {
 protected:
  CheckpointWriterTest() : folder_(testing::TempDir() + "/checkpoint_writer_test") {
    fs::remove_all(folder_);
  }

  using Body = std::function<absl::Status(RankState& own, CheckpointWriter& writer, int rank)>;
  absl::Status OnRanks(const Body& body, SaveOptions options = {},
                       const LaunchOptions& launch = {}) {
    options.files = GetParam();
    return RunRanks(kRanks, launch, [&](RankHandle& handle) {
      RankState own(handle.rank());
      CheckpointWriter writer(folder_, options, own.kernels, handle.comm());
      writer.Reserve(own.state, own.allocator);
      return body(own, writer, handle.rank());
    });
  }

  // The value of all elements of the checkpoint of a step; NaN if there is none.
  float ValueOf(int64_t step) {
    RankState whole(0);
    whole.state[0].tensor = whole.kernels.Empty({kRanks * kElements});
    const std::string path = CheckpointPath(folder_, step, GetParam());
    const auto info = LoadCheckpoint(path, {.model = "m"}, whole.state, whole.kernels);
    if (!info.ok()) return std::numeric_limits<float>::quiet_NaN();
    const absl::Span<const float> values = whole.state[0].tensor.span<float>();
    for (const float value : values) EXPECT_EQ(value, values[0]);
    return values[0];
  }

  std::vector<std::string> Names() const {
    return ListFolder(folder_).value_or(std::vector<std::string>());
  }

  const std::string folder_;
};

CheckpointInfo At(int64_t step) { return {.step = step, .model = "m", .strategy = "s"}; }

TEST_P(CheckpointWriterTest, HoldsTheStateAsItWasWhenItWasBegun) {
  const absl::Status status = OnRanks(
      [](RankState& own, CheckpointWriter& writer, int) {
        own.Fill(1);
        LS_RETURN_IF_ERROR(writer.Begin(At(1), own.state));
        own.Fill(2);
        LS_RETURN_IF_ERROR(writer.Begin(At(2), own.state));  // finishes that of step 1
        own.Fill(3);
        LS_RETURN_IF_ERROR(writer.Finish());
        EXPECT_EQ(writer.costs().checkpoints, 2);
        EXPECT_EQ(writer.costs().bytes, kElements * 4);
        EXPECT_GT(writer.costs().held_nanos, 0);
        EXPECT_GT(writer.costs().written_nanos, 0);
        EXPECT_EQ(own.allocator.books().live(MemoryClass::kCheckpoint), kElements * 4);
        return writer.Save(At(3), own.state);
      },
      {.keep = 3});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(ValueOf(1), 1);
  EXPECT_EQ(ValueOf(2), 2);
  EXPECT_EQ(ValueOf(3), 3);
}

// Large enough to be copied past the caches, and of sizes that are no whole numbers of registers.
TEST_P(CheckpointWriterTest, ALargeStateIsCopiedToTheLastByte) {
  const auto fill = [](RankState& own, float factor) {
    own.state.clear();
    for (const int64_t elements : {int64_t{3'000'001}, int64_t{7}, int64_t{300'003}}) {
      const Tensor tensor = own.kernels.Empty({elements});
      const absl::Span<float> values = tensor.span<float>();
      for (size_t i = 0; i < values.size(); ++i) values[i] = factor * static_cast<float>(i);
      own.state.push_back(
          {.name = absl::StrCat("w", elements), .tensor = tensor, .full_shape = {elements}});
    }
  };
  RankState own(0), expected(0), read(0);
  fill(own, 1);
  fill(expected, 1);
  fill(read, 0);
  ASSERT_EQ(RunRanks(1, {},
                     [&](RankHandle& handle) {
                       CheckpointWriter writer(folder_, {.files = GetParam()}, own.kernels,
                                               handle.comm());
                       writer.Reserve(own.state, own.allocator);
                       LS_RETURN_IF_ERROR(writer.Begin(At(1), own.state));
                       for (StateTensor& part : own.state) own.kernels.Fill(part.tensor, -1);
                       return writer.Finish();
                     }),
            absl::OkStatus());
  // One rank writes one file, whatever is asked for.
  const std::string path = CheckpointPath(folder_, 1, CheckpointFiles::kWhole);
  const auto info = LoadCheckpoint(path, {.model = "m"}, read.state, read.kernels);
  ASSERT_TRUE(info.ok()) << info.status();
  for (size_t i = 0; i < read.state.size(); ++i) {
    EXPECT_EQ(read.state[i].tensor.span<float>(), expected.state[i].tensor.span<float>());
  }
}

TEST_P(CheckpointWriterTest, AdvanceNeverWaitsForTheDisk) {
  std::promise<void> disk;
  const auto is_written = disk.get_future().share();
  std::atomic<bool> is_seen_early = false;
  const absl::Status status = OnRanks(
      [&](RankState& own, CheckpointWriter& writer, int rank) {
        own.Fill(1);
        LS_RETURN_IF_ERROR(writer.Begin(At(1), own.state));
        // Far more steps than the thread of low priority needs to write 8 kB.
        for (int step = 0; step < 200; ++step) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          LS_RETURN_IF_ERROR(writer.Advance());
          EXPECT_TRUE(writer.is_writing());
        }
        if (rank == 0) {
          is_seen_early = fs::exists(CheckpointPath(folder_, 1, GetParam()));
          disk.set_value();
        }
        while (writer.is_writing()) LS_RETURN_IF_ERROR(writer.Advance());
        return absl::OkStatus();
      },
      {.sync = [&](int64_t) {
        is_written.wait();
        return absl::OkStatus();
      }});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_FALSE(is_seen_early);
  EXPECT_EQ(ValueOf(1), 1);
}

TEST_P(CheckpointWriterTest, RanksWaitForTheDiskLongerThanForEachOther) {
  const absl::Status status = OnRanks(
      [&](RankState& own, CheckpointWriter& writer, int) {
        own.Fill(1);
        return writer.Save(At(1), own.state);
      },
      {.sync =
           [&](int64_t) {
             std::this_thread::sleep_for(std::chrono::seconds(3));
             return absl::OkStatus();
           }},
      {.timeout = absl::Seconds(2)});
  EXPECT_EQ(status, absl::OkStatus());
  EXPECT_EQ(ValueOf(1), 1);
}

TEST_P(CheckpointWriterTest, AnErrorOfTheThreadIsThatOfAllRanksAndKeepsWhatWasThere) {
  std::atomic<int> saves = 0, told = 0;
  const absl::Status status = OnRanks(
      [&](RankState& own, CheckpointWriter& writer, int) {
        own.Fill(1);
        LS_RETURN_IF_ERROR(writer.Begin(At(1), own.state));
        LS_RETURN_IF_ERROR(writer.Finish());
        LS_RETURN_IF_ERROR(writer.Begin(At(2), own.state));
        const absl::Status finished = writer.Finish();
        EXPECT_EQ(finished, absl::ResourceExhaustedError("the disk is full"));
        EXPECT_FALSE(writer.is_writing());
        told += finished.ok() ? 0 : 1;
        return absl::OkStatus();
      },
      {.keep = 1, .sync = [&](int64_t) {
         return ++saves == 1 ? absl::OkStatus() : absl::ResourceExhaustedError("the disk is full");
       }});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(told, kRanks);
  EXPECT_EQ(ValueOf(1), 1);
  EXPECT_EQ(Names().size(), 1u) << testing::PrintToString(Names());
}

TEST_P(CheckpointWriterTest, WeightsThatAreNotFiniteAreRefusedOnAllRanks) {
  const absl::Status status = OnRanks([](RankState& own, CheckpointWriter& writer, int rank) {
    own.Fill(rank == 1 ? std::numeric_limits<float>::infinity() : 1);
    LS_RETURN_IF_ERROR(writer.Begin(At(1), own.state));
    const absl::Status finished = writer.Finish();
    EXPECT_TRUE(absl::IsOutOfRange(finished)) << finished;
    EXPECT_THAT(finished.message(), testing::HasSubstr("'w' has elements that are infinite"));
    return absl::OkStatus();
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(Names(), testing::IsEmpty());
}

TEST_P(CheckpointWriterTest, ARunThatEndsGivesUpWhatIsNotWhole) {
  const absl::Status status = OnRanks([](RankState& own, CheckpointWriter& writer, int) {
    own.Fill(1);
    return writer.Begin(At(1), own.state);
  });
  ASSERT_TRUE(status.ok()) << status;
  // A rank may end after rank 0 has removed what it saw; a draft is all that can be left.
  for (const std::string& name : Names()) EXPECT_THAT(name, testing::HasSubstr(".tmp"));
}

INSTANTIATE_TEST_SUITE_P(Files, CheckpointWriterTest,
                         testing::Values(CheckpointFiles::kSharded, CheckpointFiles::kWhole),
                         [](const auto& of) {
                           return of.param == CheckpointFiles::kSharded ? "Sharded" : "Whole";
                         });

}  // namespace
}  // namespace lockstep
