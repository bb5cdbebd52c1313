#include "core/run/gpu_places.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Kind = GpuPlaces::Kind;

TEST(GpuPlacesTest, ThreadsHaveAGpuEachWhereThereAreEnough) {
  EXPECT_EQ(PlaceOnGpus(4, {.ranks = 4})->kind, Kind::kOwn);
  EXPECT_EQ(PlaceOnGpus(8, {.ranks = 2})->kind, Kind::kOwn);
  EXPECT_EQ(PlaceOnGpus(4, {.ranks = 4})->first, 0);
}

TEST(GpuPlacesTest, ThreadsShareOneWhereThereAreTooFew) {
  for (const int gpus : {1, 3}) {
    const auto places = PlaceOnGpus(gpus, {.ranks = 4});
    EXPECT_EQ(places->kind, Kind::kShared);
    EXPECT_EQ(places->first, 0);
  }
}

TEST(GpuPlacesTest, ProcessesHaveAGpuEach) {
  const auto places = PlaceOnGpus(2, {.ranks = 4, .processes = 2, .own_number = 1});
  ASSERT_TRUE(places.ok());
  EXPECT_EQ(places->kind, Kind::kOwn);
  EXPECT_EQ(places->first, 1);
}

TEST(GpuPlacesTest, ProcessesCannotShareOne) {
  const auto places = PlaceOnGpus(1, {.ranks = 4, .processes = 2, .own_number = 0});
  EXPECT_EQ(places.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(places.status().message()),
              AllOf(HasSubstr("2 ranks"), HasSubstr("1 GPU,"), HasSubstr("threads")));
}

TEST(GpuPlacesTest, OneRankNeedsNobody) {
  EXPECT_EQ(PlaceOnGpus(1, {.ranks = 1, .processes = 1})->kind, Kind::kShared);
}

}  // namespace
}  // namespace lockstep
