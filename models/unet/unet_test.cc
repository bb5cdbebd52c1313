#include "models/unet/unet.h"

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/autograd/testing/arrays.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/nn/skips.h"
#include "gtest/gtest.h"
#include "models/testing/comparison.h"

namespace lockstep {
namespace {

const UNetOptions kSizes[] = {{.levels = 1, .width = 8, .classes = 2, .image = 6},
                              {.levels = 3, .width = 16, .classes = 11, .image = 32},
                              {.levels = 4, .width = 10, .classes = 3, .image = 48}};

// A level of width w has down 9 (w / 2) w + 9 w^2 weights (the first from three colours), and up
// 9 (2 w + w) w + 9 w^2; each convolution with two numbers a channel for its normalisation. Summed
// over the levels, whose w^2 are a geometric series of 4.
TEST(UNetTest, HasTheParametersOfTheFormula) {
  for (const UNetOptions& o : kSizes) {
    const int64_t w = o.width, fourth = int64_t{1} << 2 * o.levels, series = (fourth - 1) / 3;
    const int64_t twice = 18 + 27 * (series - 1) + 27 * fourth + 72 * series;
    EXPECT_EQ(MakeUNet(o).ParameterCount(), 27 * w + twice * w * w / 2 +
                                                4 * w * (3 * (int64_t{1} << o.levels) - 2) +
                                                o.classes * (w + 1))
        << o.levels;
  }
  // As the experiment has it, block by block: 9 weights for each pair of channels.
  const int64_t pairs = (3 * 16 + 16 * 16) + (16 * 32 + 32 * 32) + (32 * 64 + 64 * 64) +
                        (64 * 128 + 128 * 128) + (192 * 64 + 64 * 64) + (96 * 32 + 32 * 32) +
                        (48 * 16 + 16 * 16);
  const int64_t channels = 2 * (16 + 32 + 64 + 128 + 64 + 32 + 16);
  EXPECT_EQ(MakeUNet(kSizes[1]).ParameterCount(), 9 * pairs + 2 * channels + 11 * 17);
}

// A level has a fourth of the pixels and four times the weights: each costs the same.
TEST(UNetTest, EachLevelCostsTheSame) {
  for (const UNetOptions& o : kSizes) {
    const int64_t w = o.width;
    const int64_t twice_a_pixel = 2 * (27 * w + o.classes * w) + w * w * (18 + 99 * o.levels);
    EXPECT_EQ(MakeUNet(o).ForwardMacsPerSample(), o.image * o.image * twice_a_pixel / 2)
        << o.levels;
  }
}

TEST(UNetTest, IsAListOfWaysDownAndUp) {
  const Model model = MakeUNet(kSizes[1]);
  std::vector<std::string> names;
  for (const auto& block : model.blocks) names.push_back(block->name());
  EXPECT_EQ(names, (std::vector<std::string>{"down0", "down1", "down2", "bottom", "up2", "up1",
                                             "up0", "head"}));
  std::set<std::string> unique;
  for (const Parameter* parameter : model.Parameters()) {
    unique.insert(parameter->name);
    EXPECT_FALSE(parameter->value.defined()) << "built without memory";
  }
  EXPECT_EQ(unique.size(), model.Parameters().size());
  EXPECT_EQ(model.Statistics().size(), 14u);  // one a convolution
}

TEST(UNetTest, SkipsJoinTheTwoWaysOfALevel) {
  const Model model = MakeUNet(kSizes[1]);
  ASSERT_TRUE(VerifySkips(model.blocks).ok()) << VerifySkips(model.blocks);
  std::vector<std::tuple<std::string, int64_t, int64_t, int64_t>> paths;
  for (const SkipPath& path : SkipPaths(model.blocks)) {
    paths.emplace_back(path.name.ToString(), path.from, path.to, path.elements);
  }
  EXPECT_EQ(paths, (std::vector<std::tuple<std::string, int64_t, int64_t, int64_t>>{
                       {"level2/detail", 2, 4, 8 * 8 * 64},
                       {"level1/detail", 1, 5, 16 * 16 * 32},
                       {"level0/detail", 0, 6, 32 * 32 * 16}}));
}

TEST(UNetTest, EveryPixelGetsLogits) {
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  Model model = MakeUNet({.levels = 2, .width = 4, .classes = 5, .image = 8});
  Materialize(model.Parameters(), /*seed=*/1, kernels);
  Materialize(model.Statistics(), kernels);
  Tape tape(kernels, Tape::Recording::kOff);
  Pass pass = {.tape = tape, .mode = Pass::Mode::kEvaluate};
  const Variables logits =
      RunBlocks(model, pass, Upload(kernels, RandomArray({3, 8, 8, 3}, /*stream=*/1)));
  ASSERT_EQ(logits.size(), 1u);
  EXPECT_EQ(logits[0].shape(), Shape({3, 8, 8, 5}));
  EXPECT_TRUE(pass.skips.empty());
}

TEST(UNetDeathTest, RefusesImagesThatCannotBeHalvedSoOften) {
  EXPECT_DEATH(MakeUNet({.levels = 4, .width = 8, .image = 24}), "halved");
}

}  // namespace
}  // namespace lockstep
