#include "core/checkpoint/tensor_slice.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(TensorSliceTest, KnowsWhatItHolds) {
  const TensorSlice part = {.whole = {4, 5}, .first = 16, .elements = 3};
  EXPECT_FALSE(part.IsWhole());
  EXPECT_THAT(part.StoredShape(), ElementsAre(3));
  ASSERT_EQ(part.ElementRanges().size(), 1u);
  EXPECT_EQ(part.ElementRanges()[0].in_whole, 16);
  EXPECT_EQ(part.ElementRanges()[0].in_slice, 0);
  EXPECT_EQ(part.ElementRanges()[0].elements, 3);

  const TensorSlice whole = WholeSlice({4, 5});
  EXPECT_TRUE(whole.IsWhole());
  EXPECT_THAT(whole.StoredShape(), ElementsAre(4, 5));
  EXPECT_EQ(whole.ElementRanges()[0].elements, 20);
  EXPECT_EQ(WholeSlice({}).ElementRanges()[0].elements, 1);

  EXPECT_THAT((TensorSlice{.whole = {4, 5}, .first = 20}.ElementRanges()), IsEmpty());
  EXPECT_TRUE(WholeSlice({3, 0}).IsWhole());
  EXPECT_THAT(WholeSlice({3, 0}).ElementRanges(), IsEmpty());
}

TEST(TensorSliceTest, TextComesBack) {
  const TensorSlice part = {.whole = {4, 5}, .first = 16, .elements = 3};
  EXPECT_EQ(part.ToText(), R"({"first":16,"whole":[4,5]})");
  const auto parsed = ParseTensorSlice(part.ToText(), {3});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->whole, ElementsAre(4, 5));
  EXPECT_EQ(parsed->first, 16);
  EXPECT_EQ(parsed->elements, 3);
}

TEST(TensorSliceTest, SlicesComeBack) {
  const TensorSlice part = SliceOf({6, 5}, {.dimension = 0, .ranges = {{1, 2}, {4, 1}, {6, 0}}});
  EXPECT_EQ(part.elements, 15);
  EXPECT_FALSE(part.IsWhole());
  EXPECT_THAT(part.StoredShape(), ElementsAre(3, 5));
  EXPECT_EQ(part.ElementRanges().size(), 2u);
  EXPECT_EQ(part.ToText(), R"({"dimension":0,"ranges":[[1,2],[4,1]],"whole":[6,5]})");
  const auto parsed = ParseTensorSlice(part.ToText(), {3, 5});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->elements, 15);
  EXPECT_EQ(parsed->ToText(), part.ToText());

  EXPECT_TRUE(SliceOf({6, 5}, {.dimension = 1, .ranges = {{0, 5}}}).IsWhole());
  EXPECT_THAT(SliceOf({6, 5}, {.dimension = 1, .ranges = {{5, 0}}}).ElementRanges(), IsEmpty());
}

TEST(TensorSliceTest, RangesOfSlicesComeBack) {
  // Elements 1 to 4 of columns 1 and 2 of 3 rows of 4: the second of row 0, row 1, the first of 2.
  const TensorSlice part = {.whole = {3, 4},
                            .first = 1,
                            .elements = 4,
                            .slice = Slice{.dimension = 1, .ranges = {{1, 2}}}};
  EXPECT_FALSE(part.IsWhole());
  EXPECT_THAT(part.StoredShape(), ElementsAre(4));
  std::vector<int64_t> in_whole;
  for (const ElementRange& run : part.ElementRanges()) {
    EXPECT_EQ(run.in_slice, static_cast<int64_t>(in_whole.size()));
    for (int64_t i = 0; i < run.elements; ++i) in_whole.push_back(run.in_whole + i);
  }
  EXPECT_THAT(in_whole, ElementsAre(2, 5, 6, 9));
  EXPECT_EQ(part.ToText(), R"({"dimension":1,"first":1,"ranges":[[1,2]],"whole":[3,4]})");
  const auto parsed = ParseTensorSlice(part.ToText(), {4});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->first, 1);
  EXPECT_EQ(parsed->elements, 4);
  EXPECT_EQ(parsed->ToText(), part.ToText());
  EXPECT_EQ(parsed->ElementRanges().size(), 3u);

  for (const std::vector<int64_t>& stored : {std::vector<int64_t>{6}, {2, 2}, {3, 2}}) {
    EXPECT_THAT(std::string(ParseTensorSlice(part.ToText(), stored).status().message()),
                HasSubstr("no slice of shape"));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(
      ParseTensorSlice(R"({"dimension":1,"first":-1,"ranges":[[1,2]],"whole":[3,4]})", {4})
          .status()));
  EXPECT_THAT((TensorSlice{.whole = {3, 4},
                           .first = 6,
                           .elements = 0,
                           .slice = Slice{.dimension = 1, .ranges = {{1, 2}}}}
                   .ElementRanges()),
              IsEmpty());
}

TEST(TensorSliceTest, RefusesSlicesThatDoNotFit) {
  const auto problem = [](const std::string& text, const std::vector<int64_t>& stored) {
    const auto part = ParseTensorSlice(text, stored);
    EXPECT_FALSE(part.ok()) << text;
    return std::string(part.status().message());
  };
  EXPECT_TRUE(ParseTensorSlice(R"({"dimension":1,"ranges":[[3,1]],"whole":[2,4]})", {2, 1}).ok());
  for (const std::string text :
       {R"({"dimension":1,"ranges":[[3,2]],"whole":[2,4]})",
        R"({"dimension":2,"ranges":[[0,1]],"whole":[2,4]})",
        R"({"dimension":1,"ranges":[[2,1],[2,1]],"whole":[2,4]})",
        R"({"dimension":1,"ranges":[[9223372036854775807,1]],"whole":[2,4]})",
        R"({"dimension":1,"ranges":[[0,1]],"whole":[2,4]})"}) {
    EXPECT_THAT(problem(text, {2, 2}), HasSubstr("no slice of shape [2, 2]"));
  }
  EXPECT_THAT(
      problem(R"({"dimension":0,"ranges":[[0,1]],"whole":[9223372036854775807,2]})", {1, 2}),
      HasSubstr("no slice"));
}

TEST(TensorSliceTest, RefusesTextThatIsNone) {
  for (const std::string text : {"",
                                 "{",
                                 "[]",
                                 "null",
                                 "16",
                                 R"({"first":1})",
                                 R"({"first":1,"whole":3})",
                                 R"({"first":-1,"whole":[8]})",
                                 R"({"first":1.5,"whole":[8]})",
                                 R"({"first":"1","whole":[8]})",
                                 R"({"first":1,"whole":[-8]})",
                                 R"({"first":1,"whole":[[8]]})",
                                 R"({"first":1,"whole":[8],"dim":0})",
                                 R"({"first":9223372036854775808,"whole":[8]})",
                                 "{\"first\":1,\"whole\":[8]}\xff",
                                 R"({"dimension":0,"whole":[8]})",
                                 R"({"dimension":0,"ranges":[],"whole":[8]})",
                                 R"({"dimension":0,"ranges":[1,1],"whole":[8]})",
                                 R"({"dimension":0,"ranges":[[1,0]],"whole":[8]})",
                                 R"({"dimension":0,"ranges":[[1,1,1]],"whole":[8]})",
                                 R"({"dimension":-1,"ranges":[[1,1]],"whole":[8]})",
                                 R"({"first":1,"ranges":[[1,1]],"whole":[8]})"}) {
    const absl::Status status = ParseTensorSlice(text, {1}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("is not described by")) << text;
  }
}

TEST(TensorSliceTest, RefusesWhatDoesNotFit) {
  const auto problem = [](const std::string& text, const std::vector<int64_t>& stored) {
    const auto part = ParseTensorSlice(text, stored);
    EXPECT_FALSE(part.ok()) << text;
    return std::string(part.status().message());
  };
  EXPECT_TRUE(ParseTensorSlice(R"({"first":5,"whole":[2,4]})", {3}).ok());
  EXPECT_THAT(problem(R"({"first":6,"whole":[2,4]})", {3}), HasSubstr("element 6"));
  EXPECT_THAT(problem(R"({"first":9,"whole":[2,4]})", {0}), HasSubstr("[2, 4]"));
  EXPECT_THAT(problem(R"({"first":9223372036854775807,"whole":[8]})", {3}), HasSubstr("fit"));
  EXPECT_THAT(problem(R"({"first":0,"whole":[9223372036854775807,2]})", {3}), HasSubstr("fit"));
}

}  // namespace
}  // namespace lockstep
