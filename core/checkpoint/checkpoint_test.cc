#include "core/checkpoint/checkpoint.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/file.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/testing/checkpoint_fixture.h"
#include "core/comm/launch.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CheckpointTest : public CheckpointFixture {};

TEST_F(CheckpointTest, WhatIsLoadedIsWhatWasSaved) {
  const std::vector<StateTensor> saved = {Make("a", {3, 5}, 1.5f), Make("b", {7}, -2)};
  const std::string path = Save(12, {saved});
  const std::vector<StateTensor> loaded = {Make("b", {7}, 0), Make("a", {3, 5}, 0)};
  const auto info = LoadCheckpoint(path, {.model = "m"}, loaded, kernels_);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->step, 12);
  EXPECT_EQ(info->strategy, "s");
  for (float value : loaded[1].tensor.span<float>()) EXPECT_EQ(value, 1.5f);
  for (float value : loaded[0].tensor.span<float>()) EXPECT_EQ(value, -2);
}

// Odd sizes, parts without elements at every end, ranks with nothing to save at all.
TEST_F(CheckpointTest, AnyCutLoadsUnderAnyOther) {
  const std::vector<Ends> cuts = {
      {77},         {1, 77},      {40, 77},           {0, 77, 77}, {13, 13, 60, 77},
      {26, 52, 77}, {77, 77, 77}, {3, 16, 17, 70, 77}};
  for (const CheckpointFiles files : {CheckpointFiles::kSharded, CheckpointFiles::kWhole}) {
    int64_t step = 0;
    for (const Ends& cut : cuts) {
      ++step;
      const std::string path = Save(step, States(cut, step), {.files = files, .keep = 1});
      for (const Ends& other : cuts) ExpectLoads(path, other, step);
    }
    fs::remove_all(folder_);
  }
}

// The matrix of 7 x 11 cut by columns among some ranks, and each of these slices by its elements
// among others: saved so, it is loaded in any other such way, and whole.
TEST_F(CheckpointTest, AnySlicesInAnyPiecesLoadAnyOther) {
  const auto grid = [&](int slices, int pieces, float missing) {
    std::vector<std::vector<StateTensor>> ranks;
    for (int slice = 0; slice < slices; ++slice) {
      for (int piece = 0; piece < pieces; ++piece) {
        const Range columns = EvenRange(11, slices, slice);
        const Range range = EvenRange(7 * columns.count, pieces, piece);
        StateTensor part = {.name = "w",
                            .tensor = kernels_.Empty({range.count}),
                            .full_shape = {7, 11},
                            .first = range.first,
                            .slice = Slice{.dimension = 1, .ranges = {columns}}};
        for (int64_t i = 0; i < range.count; ++i) {
          const int64_t at = range.first + i;
          const int64_t in_whole = at / columns.count * 11 + columns.first + at % columns.count;
          part.tensor.data<float>()[i] = missing == 0 ? static_cast<float>(in_whole) : missing;
        }
        ranks.push_back({part});
      }
    }
    return ranks;
  };
  const std::pair<int, int> cuts[] = {{1, 1}, {2, 1}, {1, 3}, {2, 2}, {3, 2}, {2, 5}, {11, 2}};
  int64_t step = 0;
  for (const CheckpointFiles files : {CheckpointFiles::kSharded, CheckpointFiles::kWhole}) {
    for (const auto& [slices, pieces] : cuts) {
      const std::string path = Save(++step, grid(slices, pieces, 0), {.files = files, .keep = 1});
      for (const auto& [other_slices, other_pieces] : cuts) {
        const auto wanted = grid(other_slices, other_pieces, 0);
        const auto loaded = grid(other_slices, other_pieces, -1);
        for (size_t rank = 0; rank < wanted.size(); ++rank) {
          const auto info = LoadCheckpoint(path, {.model = "m"}, loaded[rank], kernels_);
          ASSERT_TRUE(info.ok()) << info.status();
          EXPECT_TRUE(std::equal(wanted[rank][0].tensor.span<float>().begin(),
                                 wanted[rank][0].tensor.span<float>().end(),
                                 loaded[rank][0].tensor.span<float>().begin()))
              << slices << " x " << pieces << " as " << other_slices << " x " << other_pieces;
        }
      }
    }
  }
}

TEST_F(CheckpointTest, EachRankThatSavesAnythingHasAFile) {
  const std::string path = Save(1, States({40, 40, 77}, 1));
  EXPECT_EQ(path, folder_ + "/step-00000001");
  EXPECT_THAT(Names(path), ElementsAre("manifest.json", "shard-00001-of-00002.safetensors",
                                       "shard-00002-of-00002.safetensors"));
  // What the second one says, read as any reader of the format would.
  const auto reader = SafetensorsReader::Open(path + "/shard-00002-of-00002.safetensors");
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->tensors().size(), 2u);
  EXPECT_THAT(reader->Find("w")->shape, ElementsAre(37));
  EXPECT_EQ(reader->metadata().at("part w"), R"({"first":40,"whole":[7,11]})");
  EXPECT_EQ(reader->Find("replica"), nullptr);
}

TEST_F(CheckpointTest, WhatOneRankSavesIsOneFile) {
  EXPECT_EQ(Save(1, States({77, 77, 77}, 1)), folder_ + "/step-00000001.safetensors");
}

TEST_F(CheckpointTest, ItsBytesAreThoseOfAllItsFiles) {
  const std::string file = Save(1, States({77}, 1)), shards = Save(2, States({40, 77}, 1));
  EXPECT_EQ(CheckpointBytes(file).value(), ReadFile(file)->size());
  int64_t bytes = 0;
  for (const std::string& name : Names(shards)) bytes += FileBytes(shards + "/" + name).value();
  EXPECT_EQ(CheckpointBytes(shards).value(), bytes);
  // A machine may have only some of them.
  RemoveTree(shards + "/shard-00001-of-00002.safetensors");
  EXPECT_LT(CheckpointBytes(shards).value(), bytes);
  EXPECT_FALSE(CheckpointBytes(folder_ + "/step-00000009.safetensors").ok());
}

TEST_F(CheckpointTest, TheWholeFileDoesNotShowWhoWroteIt) {
  const std::string alone = *ReadFile(Save(1, States({77}, 1)));
  for (const Ends& ends : {Ends{20, 77}, Ends{0, 33, 33, 77}}) {
    const std::string path = Save(1, States(ends, 1), {.files = CheckpointFiles::kWhole});
    EXPECT_TRUE(*ReadFile(path) == alone);
  }
}

TEST_F(CheckpointTest, AFolderThatCannotBeMadeIsAnErrorOnAllRanks) {
  std::ofstream(folder_) << "a file where the folder should be";
  const StateTensor state = Make("w", {3}, 1);
  (void)RunRanks(2, {}, [&](RankHandle& handle) -> absl::Status {
    const absl::Status saved = SaveCheckpoint(folder_, {.step = 1, .model = "m", .strategy = "s"},
                                              {state}, {}, kernels_, handle.comm());
    EXPECT_FALSE(saved.ok());
    EXPECT_THAT(std::string(saved.message()), HasSubstr("checkpoint_test"));
    return absl::OkStatus();
  });
  fs::remove(folder_);
}

TEST_F(CheckpointTest, ARankThatCannotWriteIsAnErrorOnAllAndLeavesTheOlderOne) {
  const std::string older = Save(1, States({40, 77}, 1));
  for (const CheckpointFiles files : {CheckpointFiles::kSharded, CheckpointFiles::kWhole}) {
    // Rank 1 looks elsewhere, as on a machine with a disk of its own.
    const std::vector<std::vector<StateTensor>> states = States({40, 77}, 2);
    (void)RunRanks(2, {}, [&](RankHandle& handle) -> absl::Status {
      CpuKernels kernels(allocator_);
      const std::string elsewhere = folder_ + "_elsewhere";
      const absl::Status saved = SaveCheckpoint(
          handle.rank() == 0 ? folder_ : elsewhere, {.step = 2, .model = "m", .strategy = "s"},
          states[handle.rank()], {.files = files}, kernels, handle.comm());
      EXPECT_TRUE(absl::IsNotFound(saved)) << saved;
      EXPECT_THAT(std::string(saved.message()), HasSubstr(elsewhere));
      EXPECT_THAT(std::string(saved.message()), HasSubstr("all ranks must see the run directory"));
      return absl::OkStatus();
    });
    EXPECT_THAT(Names(folder_), ElementsAre("step-00000001"));
  }
  ExpectLoads(older, {77}, 1);
}

TEST_F(CheckpointTest, TheNewestAreKeptAndOthersPassedOver) {
  EXPECT_EQ(*NewestCheckpoint(folder_), std::nullopt);
  const std::vector<StateTensor> state = {Make("a", {2}, 1)};
  for (int64_t step : {9, 10, 100}) Save(step, {state});
  std::ofstream(folder_ + "/step-00000200.safetensors.tmp-1") << "unfinished";
  std::ofstream(folder_ + "/step-.safetensors") << "no number";
  std::ofstream(folder_ + "/step-300.txt") << "no checkpoint";
  EXPECT_EQ(NewestCheckpoint(folder_)->value(), folder_ + "/step-00000100.safetensors");
  EXPECT_FALSE(fs::exists(folder_ + "/step-00000009.safetensors"));
  EXPECT_TRUE(fs::exists(folder_ + "/step-00000010.safetensors"));
}

TEST_F(CheckpointTest, BothKindsAreKeptAndDeletedAlike) {
  const auto save = [&](int64_t step, CheckpointFiles files, int64_t keep) {
    Save(step, States({40, 77}, step), {.files = files, .keep = keep});
    return Names(folder_);
  };
  save(8, CheckpointFiles::kSharded, 2);
  save(9, CheckpointFiles::kWhole, 2);
  EXPECT_THAT(save(10, CheckpointFiles::kSharded, 2),
              ElementsAre("step-00000009.safetensors", "step-00000010"));
  EXPECT_THAT(save(100, CheckpointFiles::kWhole, 1), ElementsAre("step-00000100.safetensors"));
  EXPECT_THAT(save(101, CheckpointFiles::kSharded, 1), ElementsAre("step-00000101"));
}

// A run that ended between its last checkpoint and its summary saves that step again.
TEST_F(CheckpointTest, TheSameStepIsReplacedWhateverItsKind) {
  Save(1, States({40, 77}, 1));
  Save(2, States({40, 77}, 2));
  for (const Ends& ends : {Ends{20, 50, 77}, Ends{77}, Ends{1, 77}}) {
    ExpectLoads(Save(2, States(ends, 2)), {33, 77}, 2);
    EXPECT_EQ(Names(folder_).size(), 2u);
    EXPECT_EQ(Names(folder_)[0], "step-00000001");
  }
}

// The states of the folder that kills between two renames leave.
TEST_F(CheckpointTest, WhatAKillLeavesIsFoundAndTidiedUp) {
  const std::string path = Save(2, States({40, 77}, 2));
  fs::rename(path, path + ".replaced");  // the new one not yet in place
  fs::create_directory(path + ".tmp");
  std::ofstream(path + ".tmp/shard-00001-of-00002.safetensors.tmp-1-2") << "half a";
  const std::string old = NewestCheckpoint(folder_)->value();
  ExpectLoads(old, {77}, 2);

  // Saved again, and killed before the one that it replaces was deleted.
  ExpectLoads(Save(2, States({20, 50, 77}, 2)), {77}, 2);
  EXPECT_THAT(Names(folder_), ElementsAre("step-00000002"));
  fs::copy(path, path + ".replaced", fs::copy_options::recursive);
  EXPECT_EQ(NewestCheckpoint(folder_)->value(), path);
  Save(3, States({40, 77}, 3), {.keep = 1});
  EXPECT_THAT(Names(folder_), ElementsAre("step-00000003"));
}

TEST_F(CheckpointTest, WhatDoesNotFitIsRefusedBeforeAnythingIsWritten) {
  const auto shard = [&](const std::string& name, int64_t elements, int rank) {
    StateTensor part = Make(name, {elements / 2}, 1);
    part.full_shape = {elements};
    part.first = rank * elements / 2;
    return part;
  };
  const std::vector<std::vector<StateTensor>> halves = {{shard("a", 2, 0), shard("b", 2, 0)},
                                                        {shard("a", 2, 1), shard("b", 2, 1)}};
  for (const CheckpointFiles files : {CheckpointFiles::kSharded, CheckpointFiles::kWhole}) {
    const std::string path = Save(3, halves, {.files = files});
    EXPECT_EQ(path.ends_with(".safetensors"), files == CheckpointFiles::kWhole);
    EXPECT_THAT(Refused(path, {Make("a", {2}, 5), Make("b", {2}, 5)}, "other"),
                HasSubstr("another configuration"));
    EXPECT_THAT(Refused(path, {Make("a", {2}, 5), Make("c", {2}, 5)}), HasSubstr("no tensor 'c'"));
    EXPECT_THAT(Refused(path, {Make("a", {2}, 5), Make("b", {3}, 5)}),
                HasSubstr("'b' is F32[2], but this run has F32[3]"));
    StateTensor wide = Make("b", {2}, 5);
    wide.tensor = kernels_.Empty({2}, DType::kF64);
    EXPECT_THAT(Refused(path, {Make("a", {2}, 5), wide}), HasSubstr("but this run has F64[2]"));
    EXPECT_THAT(Refused(path, {Make("a", {2}, 5)}), HasSubstr("holds 2 tensors"));
  }
}

TEST_F(CheckpointTest, TheStepInTheFileDecides) {
  Save(3, States({77}, 3), {.keep = 9});
  Save(5, States({77}, 5), {.keep = 9});
  fs::rename(folder_ + "/step-00000003.safetensors", folder_ + "/step-00000900.safetensors");
  EXPECT_EQ(NewestCheckpoint(folder_)->value(), folder_ + "/step-00000005.safetensors");
  Save(6, States({77}, 6), {.keep = 2});
  EXPECT_THAT(Names(folder_),
              ElementsAre("step-00000005.safetensors", "step-00000006.safetensors"));
}

TEST_F(CheckpointTest, KeysOfTheCurveMustAgreeUnlessTheyMayDiffer) {
  const std::map<std::string, std::string> keys = {{"train.seed", "1"}, {"data.path", "\"a\""}};
  ASSERT_TRUE(SaveAll({.step = 1, .model = "m", .keys = keys}, States({77}, 1), {}).ok());
  const std::string path = NewestCheckpoint(folder_)->value();
  const auto load = [&](std::map<std::string, std::string> now, std::vector<std::string> allowed) {
    return std::string(LoadCheckpoint(path, {.model = "m", .keys = now, .allowed_changes = allowed},
                                      State({77}, 0, 0), kernels_)
                           .status()
                           .message());
  };
  EXPECT_EQ(load(keys, {}), "");
  EXPECT_THAT(load({{"train.seed", "2"}, {"data.path", "\"a\""}}, {"data"}),
              HasSubstr("train.seed is 2, but was 1; keep it, or give --allow_change train.seed"));
  EXPECT_THAT(load({{"train.seed", "1"}}, {}), HasSubstr("data.path is not given, but was \"a\""));
  EXPECT_EQ(load({{"train.seed", "1"}, {"data.path", "\"b\""}}, {"data"}), "");
  EXPECT_EQ(load({{"train.seed", "2"}}, {"data.path", "train.seed"}), "");
}

// A process that does nothing but save is killed, at any time; what is in the folder is good.
class KilledCheckpointTest : public CheckpointTest, public ::testing::WithParamInterface<int> {
 protected:
  // Never returns.
  void SaveUntilKilled() {
    std::atomic<bool> has_saved = false;
    std::thread killer([&has_saved] {
      has_saved.wait(false);
      std::this_thread::sleep_for(std::chrono::microseconds(GetParam()));
      std::raise(SIGKILL);
    });
    for (int64_t step = 1;; ++step) {
      // Each step twice: the second time it replaces what is there.
      for (const Ends& ends : {Ends{40, 77}, Ends{20, 50, 77}}) {
        Save(step, States(ends, step), {.keep = 1});
        has_saved = true;
        has_saved.notify_one();
      }
    }
  }
};

TEST_P(KilledCheckpointTest, LeavesAUsableCheckpoint) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process of its own
  EXPECT_EXIT(SaveUntilKilled(), ::testing::KilledBySignal(SIGKILL), "");
  const auto all = ListCheckpoints(folder_);
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_FALSE(all->empty());
  for (const FoundCheckpoint& found : *all) ExpectLoads(found.path, {33, 77}, found.step);
  // The next one tidies up.
  Save(1'000'000, States({40, 77}, 1), {.keep = 1});
  EXPECT_THAT(Names(folder_), ElementsAre("step-01000000"));
}

INSTANTIATE_TEST_SUITE_P(Microseconds, KilledCheckpointTest,
                         ::testing::Values(0, 300, 900, 2'100, 5'000, 11'000));

}  // namespace
}  // namespace lockstep
