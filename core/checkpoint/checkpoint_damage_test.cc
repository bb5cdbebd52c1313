// Checkpoints that nobody may go on from: files that are missing, cut short, exchanged or changed,
// and weights that are not finite.

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/testing/checkpoint_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class CheckpointDamageTest : public CheckpointFixture {};

TEST_F(CheckpointDamageTest, ADamagedFileIsNamed) {
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
  EXPECT_THAT(refused(3), AllOf(HasSubstr("it was cut short"), HasSubstr(kDamageRemedy)));
  path = save(3);
  fs::copy_file(shard(3), shard(2), fs::copy_options::overwrite_existing);
  EXPECT_THAT(refused(2), HasSubstr("is shard 3 of 3; its name says another one"));

  // The same step, cut and model, but another run.
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

TEST_F(CheckpointDamageTest, HolesAndOverlapsAreRefused) {
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

TEST_F(CheckpointDamageTest, MutatedHeadersAreRefusedOrReadable) {
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
TEST_F(CheckpointDamageTest, EveryFlippedByteIsSeen) {
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
        EXPECT_THAT(std::string(info.status().message()),
                    AnyOf(StartsWith(file), StartsWith("\"" + file)))
            << "byte " << i;
      }
      std::ofstream(file, std::ios::binary) << original;
    }
    ExpectLoads(path, {33, 77}, 1);
  }
}

// The manifest knows which files were saved together, whatever the files say of themselves.
TEST_F(CheckpointDamageTest, TheManifestNamesTheShardThatIsAnother) {
  const std::string path = Save(1, States({20, 77}, 1));
  const std::string shard = path + "/shard-00002-of-00002.safetensors";
  fs::remove(path + "/manifest.json");
  EXPECT_THAT(Refused(path), HasSubstr(path + "/manifest.json: is missing"));
  std::ofstream(path + "/manifest.json") << "{}";
  EXPECT_THAT(Refused(path), HasSubstr("manifest.json: is damaged"));
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  std::ofstream(path + "/manifest.json") << "{\"files\": [{\"name\": " + deep + "}]}";
  EXPECT_THAT(Refused(path), HasSubstr("manifest.json: is damaged"));
  ASSERT_TRUE(WriteManifest(path).ok());
  ExpectLoads(path, {33, 77}, 1);
  // The same step, cut and metadata, with other values.
  const auto reader = SafetensorsReader::Open(shard);
  ASSERT_TRUE(reader.ok());
  auto writer = SafetensorsWriter::Open(shard, reader->tensors(), reader->metadata(),
                                        WithChecksums::kAsTensor);
  ASSERT_TRUE(writer.ok());
  for (const SafetensorsTensor& tensor : reader->tensors()) {
    ASSERT_TRUE(
        writer->Append(tensor.name, std::vector<std::byte>(static_cast<size_t>(tensor.bytes)))
            .ok());
  }
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_THAT(Refused(path), HasSubstr(shard + ": is not the file that " + path));
}

// Checkpoints of earlier versions have one without a checksum of its own.
TEST_F(CheckpointDamageTest, AnEarlierManifestIsRead) {
  const std::string path = Save(1, States({20, 77}, 1));
  std::string manifest = *ReadFile(path + "/manifest.json");
  manifest.replace(manifest.find("manifest 2"), 10, "manifest 1");
  manifest.erase(manifest.rfind(",\n")) += "\n}\n";
  std::ofstream(path + "/manifest.json") << manifest;
  ExpectLoads(path, {33, 77}, 1);
}

// Blocks of checksums that no rank writes or reads alone.
TEST_F(CheckpointDamageTest, TensorsOfSeveralBlocksAreCheckedWhereTheyAreRead) {
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

TEST_F(CheckpointDamageTest, WeightsThatAreNotFiniteReplaceNothing) {
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

TEST_F(CheckpointDamageTest, OlderVersionsAreRefusedByName) {
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

}  // namespace
}  // namespace lockstep
