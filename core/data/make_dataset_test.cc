#include "core/data/make_dataset.h"

#include <string>

#include "core/data/testing.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(MakeDataset, BuiltInKindsNeedNoDirectory) {
  const auto shapes = MakeDataset({.kind = "shapes", .shapes = {.train_samples = 30}}, "");
  ASSERT_TRUE(shapes.ok()) << shapes.status();
  EXPECT_EQ((*shapes)->task(), Task::kClassification);
  EXPECT_EQ((*shapes)->size(Split::kTrain), 30);
  EXPECT_FALSE((*shapes)->entropy_rate().has_value());
  EXPECT_FALSE((*shapes)->loss_floor().has_value());

  const auto markov = MakeDataset({.kind = "markov", .markov = {.context = 20}}, "");
  ASSERT_TRUE(markov.ok()) << markov.status();
  EXPECT_EQ((*markov)->task(), Task::kLanguageModel);
  EXPECT_EQ((*markov)->input_shape(), Shape({20}));
  EXPECT_TRUE((*markov)->entropy_rate().has_value());
}

TEST(MakeDataset, LoadsFromTheDirectory) {
  const TemporaryDirectory directory;
  directory.Write("my.txt", std::string(100, 'a'));
  const auto text =
      MakeDataset({.kind = "text", .text = {.path = "my.txt", .context = 5}}, directory.path());
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ((*text)->classes(), 1);
  EXPECT_EQ(MakeDataset({.kind = "cifar10"}, directory.path()).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(MakeDataset, AnUnknownKindNamesTheNearest) {
  const absl::Status status = MakeDataset({.kind = "cifar"}, "").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            "there is no data set \"cifar\"; did you mean \"cifar10\"? There are cifar10, markov, "
            "shapes, text.");
}

}  // namespace
}  // namespace lockstep
