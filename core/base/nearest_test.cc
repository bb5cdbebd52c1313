#include "core/base/nearest.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(EditDistance, CountsEdits) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("abc", ""), 3);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("saturday", "sunday"), 3);
  EXPECT_EQ(EditDistance("abcd", "acbd"), 1);  // one swap, where Levenshtein counts two
  EXPECT_EQ(EditDistance("ab", "ba"), 1);
  EXPECT_EQ(EditDistance("ca", "abc"), 3);  // the restricted form: unrestricted it is 2
}

TEST(EditDistance, IsSymmetric) {
  const std::vector<std::string> words = {"steps", "step", "micro_batches", "micro_batch", "mesh"};
  for (const std::string& a : words) {
    for (const std::string& b : words) EXPECT_EQ(EditDistance(a, b), EditDistance(b, a));
  }
}

TEST(NearestName, FindsWhatWasMeant) {
  const std::vector<std::string> keys = {"mesh.dp", "mesh.tp", "optimizer.learning_rate",
                                         "optimizer.weight_decay", "steps"};
  EXPECT_EQ(NearestName("mesh.pd", keys), "mesh.dp");
  EXPECT_EQ(NearestName("optimiser.learning_rate", keys), "optimizer.learning_rate");
  EXPECT_EQ(NearestName("stpes", keys), "steps");
  EXPECT_EQ(NearestName("learning_rate", keys), "optimizer.learning_rate");
  EXPECT_EQ(NearestName("tp", keys), "mesh.tp");
}

TEST(NearestName, TakesTheFirstOfEqualsAndHandlesNone) {
  const std::vector<std::string> keys = {"ab", "ac"};
  EXPECT_EQ(NearestName("ad", keys), "ab");
  EXPECT_EQ(NearestName("pd", std::vector<std::string>{"pp", "dp"}), "dp") << "two letters swapped";
  EXPECT_EQ(NearestName("ad", {}), "");
}

TEST(NearestNamesTest, ListsUpToFiveTheNearestFirst) {
  EXPECT_EQ(NearestNames("block.1", {"head", "blocks.2", "blocks.1"}), "blocks.1, blocks.2, head");
  EXPECT_EQ(NearestNames("a", {"aaaaaaa", "aaaaa", "aa", "aaa", "aaaaaa", "aaaa"}),
            "aa, aaa, aaaa, aaaaa, aaaaaa");
  EXPECT_EQ(NearestNames("a", {}), "");
}

TEST(FindNamedTest, FindsTheValueOrSaysWhatThereIs) {
  const std::vector<int> numbers = {1, 2, 30};
  const auto name_of = [](int number) { return std::to_string(number); };
  EXPECT_EQ(FindNamed("number", "30", numbers, name_of).value(), 30);
  EXPECT_EQ(FindNamed("number", "31", numbers, name_of).status().message(),
            "there is no number '31'; did you mean 1? There are 1, 2, 30");
}

}  // namespace
}  // namespace lockstep
