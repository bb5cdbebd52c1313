#include "tools/schedule/timeline.h"

#include <iterator>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "strategies/schedules/named_schedules.h"
#include "tools/draw/testing/markup_check.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Draw(const Schedule& schedule, const StageCosts& costs = {}) {
  const std::vector<StageCosts> all(schedule.stages(), costs);
  return Timeline({.schedule = schedule, .costs = all, .simulation = Simulate(schedule, all)});
}

struct Drawn {
  double x, y, width;
};

// The boxes of a picture by what they say of themselves, up to the colon: "F0".
std::multimap<std::string, Drawn> Boxes(const std::string& svg) {
  const std::regex box(
      "<rect x=\"([0-9.]+)\" y=\"([0-9.]+)\" width=\"([0-9.]+)\"[^>]*><title>([^:]+):");
  std::multimap<std::string, Drawn> boxes;
  for (std::sregex_iterator at(svg.begin(), svg.end(), box), end; at != end; ++at) {
    boxes.emplace((*at)[4], Drawn{std::stod((*at)[1]), std::stod((*at)[2]), std::stod((*at)[3])});
  }
  return boxes;
}

TEST(TimelineTest, IsWholeForEverySchedule) {
  for (const std::string& name : ScheduleNames()) {
    for (const int ranks : {1, 2, 8}) {
      const int stages = name == "interleaved_1f1b" ? 2 : DefaultStagesPerRank(name);
      const auto schedule = MakeSchedule(name, ranks, stages, 16);
      ASSERT_TRUE(schedule.ok());
      const std::string svg = Draw(*schedule);
      EXPECT_EQ(MarkupFault(svg), "") << name << " " << ranks;
      EXPECT_THAT(svg, HasSubstr(name));
      for (const char* word : {"<script", "<image", "href", "@import"}) {
        EXPECT_THAT(svg, Not(HasSubstr(word)));
      }
    }
  }
}

// GPipe of two ranks and two micro-batches, by hand: F0 F1 .. .. B0 B1 over .. F0 F1 B0 B1.
TEST(TimelineTest, EachActionHasABoxAtItsPlace) {
  const auto boxes = Boxes(Draw(GPipeSchedule(2, 2)));
  ASSERT_EQ(boxes.size(), 8u);
  ASSERT_EQ(boxes.count("F0"), 2u);
  const auto of = [&](const std::string& name, int rank) {
    auto at = boxes.lower_bound(name);
    const Drawn first = at->second, second = std::next(at)->second;
    return (first.y < second.y) == (rank == 0) ? first : second;
  };
  const double start = of("F0", 0).x, unit = of("F0", 0).width;
  const auto expect = [&](const std::string& name, int rank, double begin, double length) {
    EXPECT_NEAR(of(name, rank).x, start + begin * unit, 1) << name << " " << rank;
    EXPECT_NEAR(of(name, rank).width, length * unit, 1) << name << " " << rank;
    EXPECT_EQ(of(name, rank).y, of("F0", rank).y);
  };
  expect("F1", 0, 1, 1);
  expect("B0", 0, 5, 2);
  expect("B1", 0, 7, 2);
  expect("F0", 1, 1, 1);
  expect("F1", 1, 2, 1);
  expect("B0", 1, 3, 2);
  expect("B1", 1, 5, 2);
}

TEST(TimelineTest, BoxesOfARowDoNotOverlap) {
  const auto boxes = Boxes(Draw(*InterleavedSchedule(4, 2, 8), {2, 3, 1}));
  EXPECT_EQ(boxes.size(), 2u * 8 * 8);
  std::map<double, std::map<double, double>> rows;  // by y: begin and end
  for (const auto& [name, box] : boxes) {
    EXPECT_TRUE(rows[box.y].emplace(box.x, box.x + box.width).second) << name;
  }
  EXPECT_EQ(rows.size(), 4u);
  for (const auto& [y, row] : rows) {
    double last = 0;
    for (const auto& [begin, end] : row) {
      EXPECT_GE(begin, last - 0.2);
      last = end;
    }
  }
}

TEST(TimelineTest, TellsWhatAnActionIsAndExplainsTheColoursThatOccur) {
  const std::string halves = Draw(ZeroBubbleSchedule(2, 2)), whole = Draw(GPipeSchedule(2, 2));
  EXPECT_THAT(halves,
              HasSubstr("<title>W1: weight gradient of micro-batch 1 at stage 1, 6 to 7</title>"));
  EXPECT_THAT(halves, HasSubstr(">weight gradient</text>"));
  EXPECT_THAT(whole, Not(HasSubstr(">weight gradient</text>")));
  EXPECT_THAT(whole, HasSubstr(">backward</text>"));
}

TEST(TimelineTest, StaysInBoundsWhateverTheCosts) {
  EXPECT_EQ(MarkupFault(Draw(GPipeSchedule(3, 4), {1e-3, 1, 1000})), "");
  EXPECT_THAT(Draw(GPipeSchedule(3, 4), {1e-3, 1, 1000}), HasSubstr("width=\"61"));
}

}  // namespace
}  // namespace lockstep
