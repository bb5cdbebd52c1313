#include "core/comm/mpi/announcement.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep::mpi {
namespace {

Announcement Example() {
  return {.sequence = 11,
          .signature = {.operation = Operation::kReduceScatter,
                        .dtype = DType::kBF16,
                        .reduce_op = ReduceOp::kMax,
                        .root = -1,
                        .count = 10,
                        .counts = {3, 3, 4},
                        .memory = DeviceType::kCuda},
          .label = "gradients",
          .data = {std::byte{1}, std::byte{2}, std::byte{0}}};
}

TEST(AnnouncementTest, ComesBackAsItWas) {
  for (const Announcement& announcement : {Example(), Announcement()}) {
    const auto decoded = Decode(Encode(announcement));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_TRUE(*decoded == announcement);
  }
}

TEST(AnnouncementTest, FitsIntoItsLargestSize) {
  EXPECT_LE(Encode(Example()).size(), LargestAnnouncement(3, 3));
  Announcement longest = Example();
  longest.label = std::string(1000, 'x');
  EXPECT_LE(Encode(longest).size(), LargestAnnouncement(3, 3));
  EXPECT_EQ(Decode(Encode(longest))->label, std::string(kLongestLabel, 'x'));
}

// Every cut of an announcement is refused, and so is more than one.
TEST(AnnouncementTest, RefusesOtherBytes) {
  std::vector<std::byte> bytes = Encode(Example());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(Decode(absl::MakeConstSpan(bytes).first(size)).ok()) << size;
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(Decode(bytes).ok());
}

// Whatever is in the fixed part, decoding neither crashes nor reads beyond the end.
TEST(AnnouncementTest, SurvivesChangedBytes) {
  const std::vector<std::byte> bytes = Encode(Example());
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const uint8_t flip : {0x01, 0x40, 0x80, 0xff}) {
      std::vector<std::byte> changed = bytes;
      changed[i] ^= std::byte{flip};
      const auto decoded = Decode(changed);
      if (decoded.ok()) {
        EXPECT_TRUE(Encode(*decoded).size() == changed.size());
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::mpi
