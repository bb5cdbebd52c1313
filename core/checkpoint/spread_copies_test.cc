// Ranks are threads here, and machines folders: each has a run directory of its own.

#include "core/checkpoint/spread_copies.h"

#include <cmath>  // INFINITY
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/checkpoint/in_memory.h"
#include "core/checkpoint/machines.h"
#include "core/comm/launch.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// More than a message of a transfer.
constexpr int64_t kElements = (int64_t{3} << 20) + 5;

CheckpointInfo At(int64_t step) { return {.step = step, .model = "m", .strategy = "s"}; }

class SpreadCopiesTest : public ::testing::Test {
 protected:
  ~SpreadCopiesTest() override {
    for (int machine = 0; machine < 4; ++machine) {
      RemoveInMemoryFolder(Run(machine));
      RemoveTree(Run(machine));
    }
  }

  static std::string Run(int machine) {
    const std::string run = absl::StrCat(testing::TempDir(), "/spread_copies_run_", machine);
    EXPECT_EQ(MakeDirectories(run), absl::OkStatus());
    return run;
  }
  static std::string Folder(int machine) { return InMemoryFolder(Run(machine)); }

  // Saves a vector whose equal parts the ranks have, as copies of these steps: element i is 1000 *
  // step + i.
  static absl::Status Save(const Machines& machines, int ranks, const std::vector<int64_t>& steps) {
    return RunRanks(ranks, {}, [&](RankHandle& handle) {
      CpuAllocator allocator;
      CpuKernels kernels(allocator);
      const int machine = machines.Of(handle.rank());
      LS_RETURN_IF_ERROR(MakeInMemoryFolder(Run(machine), 1));
      SpreadCopies copies(Folder(machine), machines, kernels, handle.comm());
      for (const int64_t step : steps) {
        std::vector<StateTensor> state = {PartOf(handle.rank(), ranks, kernels)};
        float* const values = state[0].tensor.data<float>();
        for (int64_t i = 0; i < state[0].tensor.elements(); ++i) {
          values[i] = static_cast<float>(1000 * step + state[0].first + i);
        }
        LS_RETURN_IF_ERROR(copies.Save(At(step), state));
        kernels.Fill(state[0].tensor, 0);
        LS_RETURN_IF_ERROR(copies.ReadOwn(state));
        if (values[3] != static_cast<float>(1000 * step + state[0].first + 3)) {
          return absl::InternalError("a rank does not read what it has saved");
        }
      }
      return absl::OkStatus();
    });
  }

  static StateTensor PartOf(int rank, int ranks, Kernels& kernels) {
    const int64_t first = kElements * rank / ranks, end = kElements * (rank + 1) / ranks;
    return {.name = "w",
            .tensor = kernels.Empty({end - first}),
            .full_shape = {kElements},
            .first = first};
  }

  // Brings together what the machines named have; their ranks are numbered anew.
  // Copies of more than `most_steps` steps are not wanted.
  static absl::Status Gather(const std::vector<int>& machine_of_ranks, int64_t most_steps = 1000) {
    const Machines machines(machine_of_ranks);
    return RunRanks(static_cast<int>(machine_of_ranks.size()), {}, [&](RankHandle& handle) {
      return BringTogether(Run(machine_of_ranks[static_cast<size_t>(handle.rank())]), machines,
                           handle.comm(), [most_steps](int64_t steps) {
                             return steps <= most_steps ? absl::OkStatus()
                                                        : absl::DataLossError("rows are missing");
                           });
    });
  }

  // The step of the one copy that a machine has, of which each byte is sound; none if there is no
  // copy.
  std::optional<int64_t> StepOn(int machine) {
    const auto found = ListCheckpoints(Folder(machine)).value();
    if (found.empty()) return std::nullopt;
    EXPECT_THAT(found, SizeIs(1));
    StateTensor whole = PartOf(0, 1, kernels_);
    const auto info = LoadCheckpoint(found[0].path, {.model = "m"}, {whole}, kernels_);
    EXPECT_TRUE(info.ok()) << info.status();
    if (!info.ok()) return std::nullopt;
    for (int64_t i = 0; i < kElements; ++i) {
      const auto expected = static_cast<float>(1000 * info->step + i);
      if (whole.tensor.data<float>()[i] == expected) continue;
      ADD_FAILURE() << "element " << i;
      break;
    }
    return info->step;
  }

  static std::vector<std::string> Shards(int machine, int64_t step) {
    auto names =
        ListFolder(CheckpointPath(Folder(machine), step, CheckpointFiles::kSharded)).value();
    std::erase(names, "manifest.json");
    return names;
  }

  // Flips a bit in the middle of a file.
  static void Damage(const std::string& path) {
    std::string bytes = ReadFile(path).value();
    bytes[bytes.size() / 2] ^= 1;
    ASSERT_EQ(WriteFileAtomically(path, bytes), absl::OkStatus());
  }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
};

TEST_F(SpreadCopiesTest, AMachineHasItsOwnShardsAndThoseOfTheOneBefore) {
  ASSERT_EQ(Save(Machines({0, 0, 1, 2}), 4, {5, 7}), absl::OkStatus());
  const auto shard = [](int i) { return absl::StrCat("shard-0000", i, "-of-00004.safetensors"); };
  EXPECT_THAT(Shards(0, 7), ElementsAre(shard(1), shard(2), shard(4)));
  EXPECT_THAT(Shards(1, 7), ElementsAre(shard(1), shard(2), shard(3)));
  EXPECT_THAT(Shards(2, 7), ElementsAre(shard(3), shard(4)));
  for (int machine = 0; machine < 3; ++machine) {
    EXPECT_THAT(ListFolder(Folder(machine)).value(), ElementsAre("run_directory", "step-00000007"))
        << "the copy before is gone";
  }
}

// One machine alone writes one whole file where one rank saves everything, as of replicas.
TEST_F(SpreadCopiesTest, ACopyOfOneMachineComesToSeveral) {
  StateTensor whole = PartOf(0, 1, kernels_);
  for (int64_t i = 0; i < kElements; ++i) {
    whole.tensor.data<float>()[i] = static_cast<float>(7000 + i);
  }
  ASSERT_EQ(MakeInMemoryFolder(Run(0), 1), absl::OkStatus());
  const absl::Status saved = RunRanks(1, {}, [&](RankHandle& handle) {
    return SaveCheckpoint(Folder(0), At(7), {whole}, {.keep = 1}, kernels_, handle.comm());
  });
  ASSERT_EQ(saved, absl::OkStatus());
  ASSERT_TRUE(PathExists(CheckpointPath(Folder(0), 7, CheckpointFiles::kWhole)));
  ASSERT_EQ(Gather({1, 0, 0}), absl::OkStatus());
  EXPECT_EQ(StepOn(0), 7);
  EXPECT_EQ(StepOn(1), 7);
  // Copies of several machines replace it.
  ASSERT_EQ(Save(Machines({0, 1}), 2, {8}), absl::OkStatus());
  ASSERT_EQ(Gather({0, 1}), absl::OkStatus());
  EXPECT_EQ(StepOn(0), 8);
  EXPECT_EQ(StepOn(1), 8);
}

TEST_F(SpreadCopiesTest, AnyOneMachineMayBeLost) {
  for (int lost = 0; lost < 3; ++lost) {
    ASSERT_EQ(Save(Machines({0, 0, 1, 1, 2, 2}), 6, {5}), absl::OkStatus());
    RemoveInMemoryFolder(Run(lost));
    // A new machine comes in its place, first or last.
    const std::vector<int> left = {(lost + 1) % 3, (lost + 2) % 3};
    ASSERT_EQ(Gather({3, left[0], left[0], left[1]}), absl::OkStatus());
    for (const int machine : {3, left[0], left[1]}) EXPECT_EQ(StepOn(machine), 5) << lost;
    RemoveInMemoryFolder(Run(3));
  }
}

TEST_F(SpreadCopiesTest, WhereTwoNeighboursAreLostThereIsNoCopy) {
  ASSERT_EQ(Save(Machines({0, 1, 2}), 3, {5}), absl::OkStatus());
  RemoveInMemoryFolder(Run(0));
  RemoveInMemoryFolder(Run(1));
  ASSERT_EQ(Gather({0, 1, 2}), absl::OkStatus());
  for (int machine = 0; machine < 3; ++machine) EXPECT_EQ(StepOn(machine), std::nullopt);
}

// A start that cannot go on takes nothing from the next one.
TEST_F(SpreadCopiesTest, ShardsOfACopyThatIsNotWholeCountAtTheNextStart) {
  ASSERT_EQ(Save(Machines({0, 1, 2, 3}), 4, {5}), absl::OkStatus());
  ASSERT_EQ(Gather({0, 1}), absl::OkStatus());
  for (int machine = 0; machine < 2; ++machine) {
    EXPECT_EQ(StepOn(machine), std::nullopt);
    // Or the launcher would have the run begin anew.
    EXPECT_THAT(ListRunCheckpoints(Run(machine)).value(), SizeIs(1));
  }
  ASSERT_EQ(Gather({0, 1, 2, 3}), absl::OkStatus());
  for (int machine = 0; machine < 4; ++machine) {
    EXPECT_EQ(StepOn(machine), 5);
    RemoveCopiesApart(Run(machine));
    EXPECT_EQ(StepOn(machine), 5);
  }
}

TEST_F(SpreadCopiesTest, AnOlderCopyIsTakenAndTheNewerOneStaysWhereRowsAreMissing) {
  ASSERT_EQ(Save(Machines({0, 1}), 2, {5}), absl::OkStatus());
  ASSERT_EQ(Save(Machines({0}), 1, {8}), absl::OkStatus());
  const auto expect_step = [this](int64_t step) {
    for (int machine = 0; machine < 2; ++machine) EXPECT_EQ(StepOn(machine), step);
  };
  testing::internal::CaptureStderr();
  ASSERT_EQ(Gather({0, 1}, /*most_steps=*/6), absl::OkStatus());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("passes a copy in memory of 8 steps over: rows are missing"));
  expect_step(5);
  ASSERT_EQ(Gather({0, 1}), absl::OkStatus());
  expect_step(8);
  ASSERT_EQ(Gather({0, 1}, /*most_steps=*/6), absl::OkStatus());
  expect_step(5);
}

TEST_F(SpreadCopiesTest, ADamagedShardComesFromItsNeighbour) {
  ASSERT_EQ(Save(Machines({0, 1}), 2, {5}), absl::OkStatus());
  const std::string shard =
      ShardPath(CheckpointPath(Folder(1), 5, CheckpointFiles::kSharded), 1, 2);
  Damage(shard);
  testing::internal::CaptureStderr();
  ASSERT_EQ(Gather({0, 1}), absl::OkStatus());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("rank 1: a part of the copy in memory is not used: "),
                    HasSubstr(shard), HasSubstr("of tensor 'w' do not have the checksum")));
  EXPECT_EQ(StepOn(0), 5);
  EXPECT_EQ(StepOn(1), 5);
}

// A machine that was away has an old copy, and perhaps one of the same step of another set.
TEST_F(SpreadCopiesTest, TheNewestWholeOneCounts) {
  ASSERT_EQ(Save(Machines({0, 1, 2}), 3, {5}), absl::OkStatus());
  ASSERT_EQ(Save(Machines({0, 0, 1}), 3, {9}), absl::OkStatus());
  ASSERT_EQ(Gather({2, 0, 1}), absl::OkStatus());
  for (int machine = 0; machine < 3; ++machine) EXPECT_EQ(StepOn(machine), 9);

  for (const bool is_first : {false, true}) {
    ASSERT_EQ(Save(Machines({0, 1, 2, 2}), 4, {11}), absl::OkStatus());
    ASSERT_EQ(Save(Machines({0, 1}), 2, {11}), absl::OkStatus());
    ASSERT_EQ(Gather(is_first ? std::vector{2, 0, 1} : std::vector{0, 1, 2}), absl::OkStatus());
    for (int machine = 0; machine < 3; ++machine) EXPECT_EQ(StepOn(machine), 11);
  }
}

// A kill between the machines' renames leaves the new copy on some and the old one on all.
TEST_F(SpreadCopiesTest, AKillAmidTheRenamesLeavesTheOneBefore) {
  ASSERT_EQ(Save(Machines({0, 1, 2}), 3, {5}), absl::OkStatus());
  std::vector<std::string> olds;
  for (int machine = 0; machine < 3; ++machine) {
    const std::string old = CheckpointPath(Folder(machine), 5, CheckpointFiles::kSharded);
    olds.push_back(old + "-kept");
    ASSERT_EQ(PutInPlace(old, olds.back()), absl::OkStatus());
  }
  ASSERT_EQ(Save(Machines({0, 1, 2}), 3, {6}), absl::OkStatus());
  for (int machine = 0; machine < 3; ++machine) {
    ASSERT_EQ(PutInPlace(olds[static_cast<size_t>(machine)],
                         CheckpointPath(Folder(machine), 5, CheckpointFiles::kSharded)),
              absl::OkStatus());
  }
  // Machine 1 is lost, and machine 2 has not renamed its draft.
  RemoveInMemoryFolder(Run(1));
  const std::string draft = CheckpointPath(Folder(2), 6, CheckpointFiles::kSharded);
  ASSERT_EQ(PutInPlace(draft, DraftPath(draft)), absl::OkStatus());
  ASSERT_EQ(Gather({0, 2}), absl::OkStatus());
  EXPECT_EQ(StepOn(0), 5);
  EXPECT_EQ(StepOn(2), 5);
}

TEST_F(SpreadCopiesTest, WeightsThatAreNotFiniteLeaveTheOneBefore) {
  const Machines machines({0, 1});
  const absl::Status status = RunRanks(2, {}, [&](RankHandle& handle) {
    CpuAllocator allocator;
    CpuKernels kernels(allocator);
    const int machine = handle.rank();
    LS_RETURN_IF_ERROR(MakeInMemoryFolder(Run(machine), 1));
    SpreadCopies copies(Folder(machine), machines, kernels, handle.comm());
    std::vector<StateTensor> state = {PartOf(machine, 2, kernels)};
    kernels.Fill(state[0].tensor, 1);
    LS_RETURN_IF_ERROR(copies.Save(At(5), state));
    if (machine == 1) kernels.Fill(state[0].tensor, INFINITY);
    const absl::Status infinite = copies.Save(At(6), state);
    EXPECT_TRUE(absl::IsOutOfRange(infinite)) << infinite;
    EXPECT_THAT(infinite.message(), HasSubstr("'w'"));
    return absl::OkStatus();
  });
  ASSERT_EQ(status, absl::OkStatus());
  for (int machine = 0; machine < 2; ++machine) {
    EXPECT_THAT(ListFolder(Folder(machine)).value(), ElementsAre("run_directory", "step-00000005"));
  }
}

TEST_F(SpreadCopiesTest, AMachineIsToldWhatItWillKeep) {
  const Machines machines({0, 0, 1, 2});
  const absl::Status status = RunRanks(4, {}, [&](RankHandle& handle) {
    LS_ASSIGN_OR_RETURN(const int64_t bytes,
                        BytesOfMachine(int64_t{1} << handle.rank(), machines, handle.comm()));
    const int64_t expected[] = {1 + 2 + 8, 1 + 2 + 8, 4 + 1 + 2, 8 + 4};
    EXPECT_EQ(bytes, expected[handle.rank()]);
    return absl::OkStatus();
  });
  EXPECT_EQ(status, absl::OkStatus());
}

TEST_F(SpreadCopiesTest, RanksOfOneProcessAreOnOneMachine) {
  const absl::Status status = RunRanks(3, {}, [&](RankHandle& handle) {
    LS_ASSIGN_OR_RETURN(const Machines machines, FindMachines(handle.comm()));
    EXPECT_FALSE(machines.are_several());
    EXPECT_EQ(machines.IsFirst(handle.rank()), handle.rank() == 0);
    return absl::OkStatus();
  });
  EXPECT_EQ(status, absl::OkStatus());
}

}  // namespace
}  // namespace lockstep
