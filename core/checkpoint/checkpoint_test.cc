#include "core/checkpoint/checkpoint.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/comm/launch.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() {
    folder_ = ::testing::TempDir() + "/checkpoint_test";
    std::filesystem::remove_all(folder_);
  }

  StateTensor Make(const std::string& name, const Shape& shape, float value) {
    Tensor tensor = kernels_.Empty(shape);
    kernels_.Fill(tensor, value);
    return {name, tensor, shape};
  }
  std::string Save(int64_t step, const std::vector<StateTensor>& state, int64_t keep = 2) {
    const absl::Status status = RunRanks(1, {}, [&](RankHandle& handle) {
      return SaveCheckpoint(folder_, {.step = step, .model = "m", .strategy = "single"}, state,
                            keep, kernels_, handle.comm());
    });
    EXPECT_TRUE(status.ok()) << status;
    return NewestCheckpoint(folder_)->value();
  }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
  std::string folder_;
};

TEST_F(CheckpointTest, WhatIsLoadedIsWhatWasSaved) {
  const std::vector<StateTensor> saved = {Make("a", {3, 5}, 1.5f), Make("b", {7}, -2)};
  const std::string path = Save(12, saved);
  const std::vector<StateTensor> loaded = {Make("b", {7}, 0), Make("a", {3, 5}, 0)};
  const auto info = LoadCheckpoint(path, "m", loaded, kernels_);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->step, 12);
  EXPECT_EQ(info->strategy, "single");
  for (float value : loaded[1].tensor.span<float>()) EXPECT_EQ(value, 1.5f);
  for (float value : loaded[0].tensor.span<float>()) EXPECT_EQ(value, -2);
}

// Three ranks with a part each, of which one is empty, and a replica that one of them saves.
TEST_F(CheckpointTest, RanksWriteTheirPartsIntoOneFile) {
  const absl::Status status = RunRanks(3, {}, [&](RankHandle& handle) -> absl::Status {
    CpuAllocator allocator;
    CpuKernels kernels(allocator);
    const int rank = handle.rank();
    const int64_t begin[] = {0, 16, 20, 20};
    const int64_t count = begin[rank + 1] - begin[rank];
    StateTensor part = {"w", kernels.Empty({count}), {4, 5}, begin[rank]};
    for (int64_t i = 0; i < count; ++i) {
      part.tensor.data<float>()[i] = static_cast<float>(begin[rank] + i);
    }
    StateTensor replica = {"r", kernels.Empty({3}), {3}};
    kernels.Fill(replica.tensor, static_cast<float>(rank));
    replica.is_writer = rank == 1;
    return SaveCheckpoint(folder_, {.step = 1, .model = "m", .strategy = "fsdp"}, {part, replica},
                          2, kernels, handle.comm());
  });
  ASSERT_TRUE(status.ok()) << status;
  const StateTensor w = Make("w", {4, 5}, 0), r = Make("r", {3}, 0);
  const auto loaded = LoadCheckpoint(**NewestCheckpoint(folder_), "m", {r, w}, kernels_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(w.tensor.data<float>()[i], i);
  for (const float value : r.tensor.span<float>()) EXPECT_EQ(value, 1);
}

TEST_F(CheckpointTest, AFolderThatCannotBeMadeIsAnErrorOnAllRanks) {
  std::ofstream(folder_) << "a file where the folder should be";
  const StateTensor state = Make("w", {3}, 1);
  (void)RunRanks(2, {}, [&](RankHandle& handle) -> absl::Status {
    const absl::Status saved = SaveCheckpoint(folder_, {.step = 1, .model = "m", .strategy = "s"},
                                              {state}, 2, kernels_, handle.comm());
    EXPECT_FALSE(saved.ok());
    if (handle.rank() == 0) {
      EXPECT_NE(saved.message().find("checkpoint_test"), std::string::npos) << saved;
    }
    return absl::OkStatus();
  });
  std::filesystem::remove(folder_);
}

TEST_F(CheckpointTest, AShardReadsItsPart) {
  StateTensor whole = Make("w", {40}, 0);
  for (int i = 0; i < 40; ++i) whole.tensor.data<float>()[i] = static_cast<float>(i);
  const std::string path = Save(1, {whole});
  StateTensor shard = Make("w", {10}, 0);
  shard.full_shape = {40};
  shard.first = 20;
  ASSERT_TRUE(LoadCheckpoint(path, "m", {shard}, kernels_).ok());
  EXPECT_EQ(shard.tensor.data<float>()[0], 20);
  EXPECT_EQ(shard.tensor.data<float>()[9], 29);
}

TEST_F(CheckpointTest, TheNewestAreKeptAndOthersPassedOver) {
  EXPECT_EQ(*NewestCheckpoint(folder_), std::nullopt);
  const std::vector<StateTensor> state = {Make("a", {2}, 1)};
  for (int64_t step : {9, 10, 100}) Save(step, state);
  std::ofstream(folder_ + "/step-00000200.safetensors.tmp-1") << "unfinished";
  EXPECT_EQ(NewestCheckpoint(folder_)->value(), folder_ + "/step-00000100.safetensors");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/step-00000009.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/step-00000010.safetensors"));
}

TEST_F(CheckpointTest, WhatDoesNotFitIsRefusedBeforeAnythingIsWritten) {
  const std::string path = Save(3, {Make("a", {2}, 1), Make("b", {2}, 1)});
  const auto refused = [&](const std::string& model, const std::vector<StateTensor>& state) {
    const auto info = LoadCheckpoint(path, model, state, kernels_);
    EXPECT_FALSE(info.ok());
    for (const StateTensor& part : state) {
      for (float value : part.tensor.span<float>()) EXPECT_EQ(value, 5);
    }
    return std::string(info.status().message());
  };
  EXPECT_NE(refused("other", {Make("a", {2}, 5), Make("b", {2}, 5)}).find("another configuration"),
            std::string::npos);
  EXPECT_NE(refused("m", {Make("a", {2}, 5), Make("c", {2}, 5)}).find("no tensor 'c'"),
            std::string::npos);
  EXPECT_NE(refused("m", {Make("a", {2}, 5), Make("b", {3}, 5)}).find("'b' is F32[2]"),
            std::string::npos);
  EXPECT_NE(refused("m", {Make("a", {2}, 5)}).find("holds 2 tensors"), std::string::npos);

  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_NE(refused("m", {Make("a", {2}, 5), Make("b", {2}, 5)}).find(path), std::string::npos);
}

}  // namespace
}  // namespace lockstep
