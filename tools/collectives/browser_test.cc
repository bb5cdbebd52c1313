// The page of all demos, opened in Chromium. Carries the tag "browser" (.bazelrc).

#include "tools/browser/browser.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/browser/testing/requests.h"
#include "tools/collectives/catalogue.h"
#include "tools/collectives/demo.h"
#include "tools/collectives/picture.h"

namespace lockstep {
namespace {

using ::testing::Gt;
using ::testing::IsEmpty;
using Json = nlohmann::json;

std::string PageOfAll() {
  std::vector<Demo> demos;
  for (const Collective& collective : Collectives()) {
    absl::StatusOr<Demo> demo = RunDemo({.operation = collective.operation});
    EXPECT_TRUE(demo.ok()) << demo.status();
    if (demo.ok()) demos.push_back(*std::move(demo));
  }
  return Page(demos);
}

// For each section with a picture: how large that is, what has a place in it, and which words in
// the browser's own font stick out of it. And by how much the page is wider than the window.
constexpr char kLook[] = R"(
  const sections = {};
  for (const section of document.querySelectorAll('section:has(svg)')) {
    const svg = section.querySelector('svg'), frame = svg.getBoundingClientRect();
    const boxOf = (element) => element.getBoundingClientRect();
    const sticksOut = (box) => box.left < frame.left - 1 || box.right > frame.right + 1 ||
                               box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
    sections[section.id] = {
      width: frame.width,
      height: frame.height,
      shapes: [...svg.querySelectorAll('rect, path, line, circle, polygon')]
                  .filter((shape) => boxOf(shape).width + boxOf(shape).height > 0).length,
      words: [...svg.querySelectorAll('text')].filter((text) => boxOf(text).width > 0).length,
      cut: [...svg.querySelectorAll('text')].filter((text) => sticksOut(boxOf(text)))
               .map((text) => text.textContent),
    };
  }
  const root = document.documentElement;
  return {sections, tooWide: root.scrollWidth - root.clientWidth};
)";

TEST(CollectivesInABrowserTest, EveryPictureIsThereWithAllItsWords) {
  const absl::StatusOr<Json> found = ResultOfScript(PageOfAll(), kLook);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->at("sections").size(), Collectives().size());
  for (const auto& [name, picture] : found->at("sections").items()) {
    SCOPED_TRACE(name);
    EXPECT_THAT(picture.at("width").get<double>(), Gt(300));
    EXPECT_THAT(picture.at("height").get<double>(), Gt(100));
    EXPECT_THAT(picture.at("shapes").get<int>(), Gt(3));
    EXPECT_THAT(picture.at("words").get<int>(), Gt(3));
    EXPECT_EQ(picture.at("cut").dump(), "[]");
  }
  EXPECT_EQ(found->at("tooWide"), 0);
}

TEST(CollectivesInABrowserTest, NoRequestLeavesThePage) {
  const auto requests = RequestsOf(PageOfAll());
  ASSERT_TRUE(requests.ok()) << requests.status();
  EXPECT_THAT(*requests, IsEmpty());
}

}  // namespace
}  // namespace lockstep
