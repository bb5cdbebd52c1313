#include "core/checkpoint/checkpoint.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/safetensors.h"
#include "core/comm/launch.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Where the ranks' parts of the matrix end, of 77 elements.
using Ends = std::vector<int64_t>;
constexpr int64_t kElements = 77;

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() {
    folder_ = ::testing::TempDir() + "/checkpoint_test";
    fs::remove_all(folder_);
  }

  StateTensor Make(const std::string& name, const Shape& shape, float value) {
    Tensor tensor = kernels_.Empty(shape);
    kernels_.Fill(tensor, value);
    return {name, tensor, shape};
  }

  // Saves, each rank its state.
  absl::Status SaveAll(const CheckpointInfo& info, const std::vector<std::vector<StateTensor>>& all,
                       const SaveOptions& options) {
    return RunRanks(static_cast<int>(all.size()), {}, [&](RankHandle& handle) {
      CpuKernels kernels(allocator_);
      return SaveCheckpoint(folder_, info, all[handle.rank()], options, kernels, handle.comm());
    });
  }
  std::string Save(int64_t step, const std::vector<std::vector<StateTensor>>& all,
                   const SaveOptions& options = {}) {
    const absl::Status status =
        SaveAll({.step = step, .model = "m", .strategy = "s"}, all, options);
    EXPECT_TRUE(status.ok()) << status;
    return NewestCheckpoint(folder_)->value_or("none");
  }

  // One state with all that there is: a matrix and bytes in parts, a replica and a scalar that one
  // rank saves, in double and int64, and a tensor without elements. The matrix counts from
  // 1000 * step on.
  std::vector<StateTensor> State(const Ends& ends, size_t rank, int64_t step) {
    const auto part = [&](const std::string& name, const Shape& shape, DType dtype) {
      const auto scaled = [&](int64_t end) { return end * shape.elements() / kElements; };
      const int64_t begin = rank == 0 ? 0 : scaled(ends[rank - 1]);
      return StateTensor{name, kernels_.Empty({scaled(ends[rank]) - begin}, dtype), shape, begin};
    };
    StateTensor w = part("w", {7, 11}, DType::kF32);
    for (int64_t i = 0; i < w.tensor.elements(); ++i) {
      w.tensor.data<float>()[i] = static_cast<float>(1000 * step + w.first + i);
    }
    StateTensor bytes = part("bytes", {9}, DType::kU8);
    for (int64_t i = 0; i < bytes.tensor.elements(); ++i) {
      bytes.tensor.data<uint8_t>()[i] = static_cast<uint8_t>(200 + bytes.first + i);
    }
    StateTensor replica = {"replica", kernels_.Empty({3}, DType::kF64), {3}};
    for (int i = 0; i < 3; ++i) replica.tensor.data<double>()[i] = 1.0 / (i + 3);
    StateTensor scalar = {"scalar", kernels_.Empty({}, DType::kI64), {}};
    scalar.tensor.data<int64_t>()[0] = int64_t{1} << 60;
    StateTensor empty = {"empty", kernels_.Empty({3, 0}), {3, 0}};
    replica.is_writer = scalar.is_writer = empty.is_writer = rank == 0;
    return {w, bytes, replica, scalar, empty};
  }
  std::vector<std::vector<StateTensor>> States(const Ends& ends, int64_t step) {
    std::vector<std::vector<StateTensor>> all;
    for (size_t rank = 0; rank < ends.size(); ++rank) all.push_back(State(ends, rank, step));
    return all;
  }

  // Loads the parts of all ranks, and compares them with what they should be.
  void ExpectLoads(const std::string& path, const Ends& ends, int64_t step) {
    for (size_t rank = 0; rank < ends.size(); ++rank) {
      const std::vector<StateTensor> wanted = State(ends, rank, step);
      const std::vector<StateTensor> loaded = State(ends, rank, 0);
      for (const StateTensor& part : loaded) {
        std::fill_n(part.tensor.raw(), part.tensor.bytes(), std::byte{0x5a});
      }
      const auto info = LoadCheckpoint(path, {.model = "m"}, loaded, kernels_);
      ASSERT_TRUE(info.ok()) << info.status();
      EXPECT_EQ(info->step, step);
      for (size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_TRUE(std::equal(wanted[i].tensor.raw(),
                               wanted[i].tensor.raw() + wanted[i].tensor.bytes(),
                               loaded[i].tensor.raw()))
            << path << " rank " << rank << " of " << ends.size() << ": " << wanted[i].name;
      }
    }
  }

  // The message with which loading all of it is refused, which leaves the tensors as they were.
  std::string Refused(const std::string& path, const std::vector<StateTensor>& state,
                      const std::string& model = "m") {
    std::vector<std::vector<std::byte>> before;
    for (const StateTensor& part : state) {
      before.emplace_back(part.tensor.raw(), part.tensor.raw() + part.tensor.bytes());
    }
    const auto info = LoadCheckpoint(path, {.model = model}, state, kernels_);
    EXPECT_FALSE(info.ok());
    for (size_t i = 0; i < state.size(); ++i) {
      EXPECT_TRUE(std::equal(before[i].begin(), before[i].end(), state[i].tensor.raw()));
    }
    return std::string(info.status().message());
  }
  std::string Refused(const std::string& path) { return Refused(path, State({kElements}, 0, 0)); }

  std::vector<std::string> Names(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
  std::string folder_;
};

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
  EXPECT_EQ(CheckpointBytes(shards).value(),
            ReadFile(shards + "/shard-00001-of-00002.safetensors")->size() +
                ReadFile(shards + "/shard-00002-of-00002.safetensors")->size());
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

TEST_F(CheckpointTest, ADamagedFileIsNamed) {
  const std::string whole = Save(1, States({77}, 1));
  fs::resize_file(whole, fs::file_size(whole) - 1);
  EXPECT_THAT(Refused(whole), HasSubstr(whole));

  const auto save = [&](int64_t step) { return Save(step, States({20, 50, 77}, step)); };
  std::string path = save(2);
  const auto shard = [&path](int number) {
    return absl::StrCat(path, "/shard-0000", number, "-of-00003.safetensors");
  };
  const auto refused = [&](int number) {
    const std::string message = Refused(path);
    EXPECT_THAT(message, HasSubstr(shard(number)));
    return message;
  };
  fs::rename(shard(2), path + "/away");
  EXPECT_THAT(refused(2), HasSubstr("is missing; the checkpoint consists of 3 such files"));
  fs::rename(path + "/away", shard(2));
  ExpectLoads(path, {77}, 2);

  fs::resize_file(shard(3), fs::file_size(shard(3)) - 1);
  EXPECT_THAT(refused(3), HasSubstr("it was cut short"));
  path = save(3);
  fs::copy_file(shard(3), shard(2), fs::copy_options::overwrite_existing);
  EXPECT_THAT(refused(2), HasSubstr("is shard 3 of 3; its name says another one"));

  // Of the same step, cut and model, but of another run.
  path = save(4);
  fs::rename(shard(2), folder_ + "/foreign");
  save(4);
  ExpectLoads(path, {77}, 4);
  fs::rename(folder_ + "/foreign", shard(2));
  EXPECT_THAT(refused(2), HasSubstr("was not saved together with " + shard(1)));

  path = save(5);
  fs::copy_file(shard(1), path + "/shard-00004-of-00004.safetensors");
  EXPECT_THAT(Refused(path), HasSubstr("shard-00004-of-00004.safetensors: does not belong"));
  fs::remove(path + "/shard-00004-of-00004.safetensors");
  fs::copy_file(shard(1), folder_ + "/step-00000006.safetensors");
  EXPECT_THAT(Refused(folder_ + "/step-00000006.safetensors"),
              HasSubstr("step-00000006.safetensors: is one shard of a checkpoint"));
  fs::remove(shard(1));
  fs::rename(Save(7, States({77}, 7), {.keep = 9}), shard(1));
  EXPECT_THAT(refused(1), HasSubstr("is a whole checkpoint and no shard"));

  const auto bare = SafetensorsWriter::Open(shard(1), {});
  ASSERT_TRUE(bare.ok() && SafetensorsWriter::Open(shard(1), {})->Commit().ok());
  EXPECT_THAT(refused(1), HasSubstr("is no checkpoint of a training run"));
  for (const int number : {1, 2, 3}) fs::remove(shard(number));
  EXPECT_THAT(Refused(path), HasSubstr(path + ": holds no file of a checkpoint"));
}

TEST_F(CheckpointTest, HolesAndOverlapsAreRefused) {
  // What two ranks save of a tensor of 20 elements.
  const auto save = [&](const Shape& shape, int64_t end, int64_t begin, int64_t last) {
    const auto part = [&](const Shape& whole, int64_t first, int64_t elements) {
      StateTensor w = Make("w", {elements}, 1);
      w.full_shape = whole;
      w.first = first;
      return w;
    };
    const std::string path = Save(1, {{part({4, 5}, 0, end)}, {part(shape, begin, last - begin)}});
    return Refused(path, {Make("w", {4, 5}, 2)});
  };
  EXPECT_THAT(save({4, 5}, 10, 12, 20), HasSubstr("elements 10 to 11 of tensor 'w' are in none"));
  EXPECT_THAT(save({4, 5}, 10, 10, 19), HasSubstr("element 19 of tensor 'w' are in none"));
  EXPECT_THAT(save({4, 5}, 10, 9, 20), HasSubstr("shard-00002-of-00002.safetensors: holds element "
                                                 "9 of tensor 'w', but so does"));
  EXPECT_THAT(save({4, 5}, 20, 5, 8), HasSubstr("holds elements 5 to 7 of tensor 'w'"));
  EXPECT_THAT(save({20}, 10, 10, 20), HasSubstr("is a part of F32[20], but in"));
}

TEST_F(CheckpointTest, MutatedHeadersAreRefusedOrReadable) {
  const std::string path = Save(1, States({20, 50, 77}, 1));
  const std::string file = path + "/shard-00002-of-00003.safetensors";
  const std::string original = *ReadFile(file);
  uint64_t header = 0;
  std::copy_n(original.data(), sizeof(header), reinterpret_cast<char*>(&header));
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    std::string mutated = original;
    for (size_t change = 0; change <= random() % 3; ++change) {
      // Digits, mostly, for they may leave the header sound.
      mutated[8 + random() % header] = static_cast<char>("0123456789,\"}x"[random() % 14]);
    }
    std::ofstream(file, std::ios::binary) << mutated;
    const auto info = LoadCheckpoint(path, {.model = "m"}, State({77}, 0, 0), kernels_);
    if (info.ok()) continue;
    EXPECT_THAT(std::string(info.status().message()), HasSubstr(path));
  }
}

// Length, header, padding, data, checksums: whatever was changed, nobody goes on from it.
TEST_F(CheckpointTest, EveryFlippedByteIsSeen) {
  for (const CheckpointFiles files : {CheckpointFiles::kWhole, CheckpointFiles::kSharded}) {
    const std::string path = Save(1, States({20, 50, 77}, 1), {.files = files});
    const bool is_whole = files == CheckpointFiles::kWhole;
    std::vector<std::string> names = {path};
    if (!is_whole) names = {path + "/shard-00002-of-00003.safetensors", path + "/manifest.json"};
    for (const std::string& file : names) {
      const std::string original = *ReadFile(file);
      for (size_t i = 0; i < original.size(); ++i) {
        std::string changed = original;
        changed[i] = static_cast<char>(changed[i] ^ (1 << i % 8));
        std::ofstream(file, std::ios::binary) << changed;
        const auto info = LoadCheckpoint(path, {.model = "m"}, State({kElements}, 0, 0), kernels_);
        EXPECT_FALSE(info.ok()) << file << " byte " << i;
        EXPECT_THAT(std::string(info.status().message()), HasSubstr(path));
      }
      std::ofstream(file, std::ios::binary) << original;
    }
    ExpectLoads(path, {33, 77}, 1);
  }
}

// The manifest knows which files were saved together, whatever the files say of themselves.
TEST_F(CheckpointTest, TheManifestNamesTheShardThatIsAnother) {
  const std::string path = Save(1, States({20, 77}, 1));
  const std::string shard = path + "/shard-00002-of-00002.safetensors";
  fs::remove(path + "/manifest.json");
  EXPECT_THAT(Refused(path), HasSubstr(path + "/manifest.json: is missing"));
  std::ofstream(path + "/manifest.json") << "{}";
  EXPECT_THAT(Refused(path), HasSubstr("manifest.json: is damaged: it does not list the 2 shards"));
  ASSERT_TRUE(WriteManifest(path).ok());
  ExpectLoads(path, {33, 77}, 1);
  // The same step, cut and metadata, with other values.
  const std::string manifest = *ReadFile(path + "/manifest.json");
  const auto reader = SafetensorsReader::Open(shard);
  ASSERT_TRUE(reader.ok());
  auto writer =
      SafetensorsWriter::Open(shard, reader->tensors(), reader->metadata(), WithChecksums::kYes);
  ASSERT_TRUE(writer.ok());
  for (const SafetensorsTensor& tensor : reader->tensors()) {
    ASSERT_TRUE(
        writer->Append(tensor.name, std::vector<std::byte>(static_cast<size_t>(tensor.bytes)))
            .ok());
  }
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_THAT(Refused(path), HasSubstr(shard + ": is not the file that " + path));
}

// Blocks of checksums that no rank writes or reads alone.
TEST_F(CheckpointTest, TensorsOfSeveralBlocksAreCheckedWhereTheyAreRead) {
  constexpr int64_t kMany = 700'000;  // 2.7 MiB
  const auto part = [&](int64_t first, int64_t end) {
    StateTensor w = Make("w", {end - first}, 0);
    for (int64_t i = first; i < end; ++i) w.tensor.data<float>()[i - first] = static_cast<float>(i);
    w.full_shape = {kMany};
    w.first = first;
    return w;
  };
  for (const CheckpointFiles files : {CheckpointFiles::kWhole, CheckpointFiles::kSharded}) {
    const std::string path =
        Save(1, {{part(0, 100'001)}, {part(100'001, kMany)}}, {.files = files});
    const StateTensor expected = part(300'000, 500'000), loaded = part(300'000, 500'000);
    kernels_.Fill(loaded.tensor, 0);
    ASSERT_TRUE(LoadCheckpoint(path, {.model = "m"}, {loaded}, kernels_).ok());
    EXPECT_TRUE(std::equal(expected.tensor.raw(), expected.tensor.raw() + expected.tensor.bytes(),
                           loaded.tensor.raw()));
    const bool is_whole = files == CheckpointFiles::kWhole;
    const std::string file = is_whole ? path : path + "/shard-00002-of-00002.safetensors";
    std::string changed = *ReadFile(file);
    changed[changed.size() / 2] ^= 1;
    std::ofstream(file, std::ios::binary) << changed;
    EXPECT_THAT(
        std::string(
            LoadCheckpoint(path, {.model = "m"}, {part(0, kMany)}, kernels_).status().message()),
        HasSubstr("of tensor 'w' do not have the checksum that was saved with them"));
  }
}

TEST_F(CheckpointTest, WeightsThatAreNotFiniteReplaceNothing) {
  const std::string older = Save(1, States({40, 77}, 1));
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    StateTensor bad = {"bad", kernels_.Empty({3}, dtype), {3}};
    kernels_.Fill(bad.tensor, std::numeric_limits<float>::infinity());
    std::vector<std::vector<StateTensor>> states = States({40, 77}, 2);
    states[1].push_back(bad);
    states[0].push_back(bad);
    states[0].back().is_writer = false;
    for (const CheckpointFiles files : {CheckpointFiles::kWhole, CheckpointFiles::kSharded}) {
      const absl::Status saved =
          SaveAll({.step = 2, .model = "m"}, states, {.files = files, .keep = 1});
      EXPECT_EQ(saved.code(), absl::StatusCode::kOutOfRange);
      EXPECT_THAT(std::string(saved.message()), HasSubstr("'bad' has elements that are infinite"));
      EXPECT_THAT(Names(folder_), ElementsAre("step-00000001"));
    }
  }
  ExpectLoads(older, {77}, 1);
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

TEST_F(CheckpointTest, OlderVersionsAreRefusedByName) {
  fs::create_directories(folder_);
  const std::string path = folder_ + "/step-00000001.safetensors";
  auto file = SafetensorsWriter::Open(
      path, {}, {{"format", "lockstep checkpoint 1"}, {"step", "1"}, {"model", "m"}});
  ASSERT_TRUE(file.ok() && file->Commit().ok());
  EXPECT_THAT(
      std::string(ReadCheckpointInfo(path).status().message()),
      HasSubstr(
          "was written by another version of Lockstep (\"lockstep checkpoint 1\", "
          "this one reads \"lockstep checkpoint 2\" and \"lockstep checkpoint shard 3\"), whose "
          "files have no checksums"));
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
  EXPECT_THAT(load({{"train.seed", "1"}}, {}), HasSubstr("data.path is not there, but was \"a\""));
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
