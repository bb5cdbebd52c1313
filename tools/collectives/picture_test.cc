#include "tools/collectives/picture.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/collectives/catalogue.h"
#include "tools/collectives/demo.h"
#include "tools/collectives/layout.h"
#include "tools/draw/svg.h"
#include "tools/draw/testing/markup_check.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Demo DemoOf(const DemoOptions& options) {
  absl::StatusOr<Demo> demo = RunDemo(options);
  EXPECT_TRUE(demo.ok()) << demo.status();
  return *std::move(demo);
}

int Count(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

// Nothing is fetched from elsewhere.
void ExpectSelfContained(const std::string& text) {
  EXPECT_EQ(Count(text, "http:"), Count(text, "xmlns=\"http://www.w3.org/2000/svg\""));
  for (const char* word : {"<script", "<link", "@import", "https:", "<image", "<img", "src="}) {
    EXPECT_THAT(text, Not(HasSubstr(word)));
  }
}

TEST(PictureTest, IsWholeForEveryOperationAndSize) {
  for (const Collective& collective : Collectives()) {
    for (const int ranks : {1, 2, 5, 16}) {
      const std::string svg = Picture(DemoOf({.operation = collective.operation,
                                              .ranks = ranks,
                                              .root = ranks - 1,
                                              .count = 2,
                                              .uneven = AllowsUneven(collective.operation)}));
      EXPECT_EQ(MarkupFault(svg), "") << collective.name << " " << ranks;
      EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
      ExpectSelfContained(svg);
    }
  }
}

TEST(PictureTest, HasAnArrowForEachSource) {
  const auto arrows = [](Operation operation) {
    return Count(Picture(DemoOf({.operation = operation})), "marker-end=");
  };
  EXPECT_EQ(arrows(Operation::kSend), 3);
  EXPECT_EQ(arrows(Operation::kBroadcast), 4);
  EXPECT_EQ(arrows(Operation::kAllReduce), 16);
  EXPECT_EQ(arrows(Operation::kAllToAll), 16);
}

// What stays is dashed: the diagonal.
TEST(PictureTest, DashesWhatStaysOnItsRank) {
  EXPECT_EQ(
      Count(Picture(DemoOf({.operation = Operation::kAllGather})), "stroke-dasharray=\"4 3\""), 4);
  EXPECT_EQ(Count(Picture(DemoOf({.operation = Operation::kSend})), "stroke-dasharray=\"4 3\""), 0);
}

TEST(PictureTest, ShowsTheValuesAndTheCost) {
  const std::string svg = Picture(DemoOf({.operation = Operation::kAllReduce, .ranks = 3}));
  EXPECT_EQ(Count(svg, ">6</text>"), 3);
  EXPECT_THAT(svg, HasSubstr(CollectiveOf(Operation::kAllReduce).time));
  EXPECT_THAT(svg, HasSubstr("n = 3, B = 4 bytes: all ranks together send 16 bytes"));
}

bool Apart(const Box& a, const Box& b) {
  return a.right() <= b.x || b.right() <= a.x || a.bottom() <= b.y || b.bottom() <= a.y;
}

TEST(LayoutTest, NothingOverlapsAndAllIsInside) {
  for (const Collective& collective : Collectives()) {
    for (const int ranks : {1, 3, 8, 16}) {
      const Demo demo = DemoOf({.operation = collective.operation, .ranks = ranks, .count = 3});
      const Layout layout =
          LayoutOf(demo.movement, {.left = 10, .top = 20, .element_width = 30, .min_width = 100});
      std::vector<Box> cells, panels;
      for (const LayoutSide* side : {&layout.before, &layout.after}) {
        panels.insert(panels.end(), side->panels.begin(), side->panels.end());
        for (size_t rank = 0; rank < side->cells.size(); ++rank) {
          for (const Box& cell : side->cells[rank]) {
            cells.push_back(cell);
            EXPECT_GT(cell.x, side->panels[rank].x);
            EXPECT_LT(cell.right(), side->panels[rank].right());
          }
        }
      }
      for (const std::vector<Box>* boxes : {&cells, &panels}) {
        for (size_t i = 0; i < boxes->size(); ++i) {
          EXPECT_GE((*boxes)[i].x, 10);
          EXPECT_GE((*boxes)[i].y, 20);
          EXPECT_LE((*boxes)[i].right(), layout.right);
          EXPECT_LE((*boxes)[i].bottom(), layout.bottom);
          for (size_t j = 0; j < i; ++j) EXPECT_TRUE(Apart((*boxes)[i], (*boxes)[j]));
        }
      }
    }
  }
}

TEST(PageTest, IsWholeAndHasEverything) {
  std::vector<Demo> demos;
  for (const Collective& collective : Collectives()) {
    demos.push_back(DemoOf({.operation = collective.operation}));
  }
  const std::string page = Page(demos);
  EXPECT_EQ(MarkupFault(page), "");
  ExpectSelfContained(page);
  EXPECT_EQ(Count(page, "<svg"), static_cast<int>(demos.size()));
  for (const Collective& collective : Collectives()) {
    EXPECT_THAT(page, HasSubstr(absl::StrCat("<h2>", collective.name, "</h2>")));
    EXPECT_THAT(page, HasSubstr(Escaped(collective.users)));
  }
  EXPECT_THAT(page, HasSubstr("[3] data = tensor([10.])"));
}

// The pictures of docs/collectives.md are those of the program.
TEST(DocsTest, PicturesAreUpToDate) {
  for (const Collective& collective : Collectives()) {
    const std::string path = absl::StrCat("docs/collectives/", collective.name, ".svg");
    const absl::StatusOr<std::string> kept = ReadFile(path);
    ASSERT_TRUE(kept.ok()) << kept.status();
    EXPECT_TRUE(*kept == Picture(DemoOf({.operation = collective.operation})))
        << path << " is out of date: ./bazelw run //tools/collectives -- " << collective.name
        << " --out docs/collectives";
  }
}

}  // namespace
}  // namespace lockstep
