#include "core/run/record/routed_steps.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using Kind = RoutedStep::Kind;
using Numbers = RoutingNotes::Numbers;

// A step that meets one number, while so many bytes of activations are live.
void Step(RoutedSteps& steps, Kind kind, int64_t number, int64_t bytes, MemoryBooks& books) {
  steps.Begin(kind);
  Numbers numbers = {number};
  steps.notes().Meet(numbers);
  books.Add(MemoryClass::kActivations, bytes);
  books.Remove(MemoryClass::kActivations, bytes);
  steps.End(kind, books);
}

TEST(RoutedStepsTest, KeepsTheStepsOfPeaks) {
  MemoryBooks books;
  books.Add(MemoryClass::kActivations, 10);
  StepsOfPeaks steps(books);
  Step(steps, Kind::kTraining, 1, 0, books);  // no more than before
  EXPECT_TRUE(steps.steps().empty());
  Step(steps, Kind::kTraining, 2, 50, books);
  Step(steps, Kind::kTraining, 3, 90, books);
  Step(steps, Kind::kTraining, 4, 70, books);
  Step(steps, Kind::kEvaluation, 5, 20, books);
  ASSERT_EQ(steps.steps().size(), 1u);
  EXPECT_EQ(steps.steps()[0].kind, Kind::kTraining);
  EXPECT_THAT(steps.steps()[0].numbers, ElementsAre(Numbers{3}));
  Step(steps, Kind::kEvaluation, 6, 100, books);
  ASSERT_EQ(steps.steps().size(), 2u);
  EXPECT_EQ(steps.steps()[1].kind, Kind::kEvaluation);
  EXPECT_THAT(steps.steps()[1].numbers, ElementsAre(Numbers{6}));
}

TEST(RoutedStepsTest, NamesAStepOfSeveralClassesOnce) {
  MemoryBooks books;
  StepsOfPeaks steps(books);
  steps.Begin(Kind::kTraining);
  Numbers numbers = {1};
  steps.notes().Meet(numbers);
  books.Add(MemoryClass::kActivations, 10);
  books.Add(MemoryClass::kWorkspace, 10);
  steps.End(Kind::kTraining, books);
  EXPECT_EQ(steps.steps().size(), 1u);
}

TEST(RoutedStepsTest, RepeatsThem) {
  RepeatedSteps steps({{.kind = Kind::kTraining, .numbers = {{1, 2}, {3}}},
                       {.kind = Kind::kTraining, .numbers = {{4, 5}, {6}}}});
  const auto met = [&steps](Kind kind) {
    steps.Begin(kind);
    std::vector<Numbers> all = {{7, 8}, {9}, {10}};
    for (Numbers& numbers : all) steps.notes().Meet(numbers);
    return all;
  };
  EXPECT_THAT(met(Kind::kTraining), ElementsAre(Numbers{1, 2}, Numbers{3}, Numbers{10}));
  EXPECT_THAT(met(Kind::kEvaluation), ElementsAre(Numbers{7, 8}, Numbers{9}, Numbers{10}));
  EXPECT_THAT(met(Kind::kTraining), ElementsAre(Numbers{4, 5}, Numbers{6}, Numbers{10}));
  EXPECT_THAT(met(Kind::kTraining), ElementsAre(Numbers{4, 5}, Numbers{6}, Numbers{10}));
}

}  // namespace
}  // namespace lockstep
