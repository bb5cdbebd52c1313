#include "core/base/byte_stream.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

struct Point {
  int x = 0;
  double y = 0;
};

std::vector<std::byte> Example() {
  ByteWriter writer;
  writer.Put(Point{.x = 3, .y = 0.5});
  writer.Put(std::string("two words"));
  writer.Put(std::vector<int64_t>{1, -2});
  writer.Put(std::vector<double>());
  return writer.Take();
}

TEST(ByteStreamTest, ValuesComeBack) {
  Point point;
  std::string text;
  std::vector<int64_t> numbers;
  std::vector<double> none = {1};
  const std::vector<std::byte> bytes = Example();
  ByteReader reader(bytes);
  reader.Get(&point);
  reader.Get(&text);
  reader.Get(&numbers);
  EXPECT_FALSE(reader.complete());
  reader.Get(&none);
  EXPECT_TRUE(reader.complete());
  EXPECT_EQ(point.x, 3);
  EXPECT_EQ(point.y, 0.5);
  EXPECT_EQ(text, "two words");
  EXPECT_EQ(numbers, (std::vector<int64_t>{1, -2}));
  EXPECT_TRUE(none.empty());
}

TEST(ByteStreamTest, MissingBytesAreSeen) {
  const std::vector<std::byte> bytes = Example();
  for (size_t size = 0; size < bytes.size(); ++size) {
    Point point;
    std::string text;
    std::vector<int64_t> numbers;
    std::vector<double> none;
    ByteReader reader(absl::MakeConstSpan(bytes).first(size));
    reader.Get(&point);
    reader.Get(&text);
    reader.Get(&numbers);
    reader.Get(&none);
    EXPECT_FALSE(reader.ok()) << size;
  }
}

// A count beyond what is there is refused before memory is asked for.
TEST(ByteStreamTest, WildCountsAreRefused) {
  ByteWriter writer;
  writer.Put(~uint64_t{0});
  const std::vector<std::byte> bytes = writer.Take();
  std::vector<double> values;
  ByteReader reader(bytes);
  reader.Get(&values);
  EXPECT_FALSE(reader.ok());
  EXPECT_TRUE(values.empty());
}

}  // namespace
}  // namespace lockstep
