#include "core/run/device/gpu_places.h"

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(GpuPlacesTest, ThreadsHaveAGpuEachWhereThereAreEnough) {
  EXPECT_EQ(PlaceOnGpus(4, {.ranks = 4}), GpuPlaces::kOwn);
  EXPECT_EQ(PlaceOnGpus(8, {.ranks = 2}), GpuPlaces::kOwn);
}

TEST(GpuPlacesTest, ThreadsShareOneWhereThereAreTooFew) {
  for (const int gpus : {1, 3}) EXPECT_EQ(PlaceOnGpus(gpus, {.ranks = 4}), GpuPlaces::kShared);
}

// Under Slurm a process may see one GPU alone, which is another for each.
TEST(GpuPlacesTest, ProcessesHaveAGpuEachHoweverFewTheySee) {
  for (const int gpus : {1, 2, 8}) {
    EXPECT_EQ(PlaceOnGpus(gpus, {.ranks = 4, .processes = 2}), GpuPlaces::kOwn);
  }
}

TEST(GpuPlacesTest, OneRankNeedsNobody) {
  EXPECT_EQ(PlaceOnGpus(1, {.ranks = 1, .processes = 1}), GpuPlaces::kShared);
}

}  // namespace
}  // namespace lockstep
