#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/config/key_meanings.h"
#include "core/run/config_listing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/mesh/mesh.h"
#include "tools/keys/keys_section.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::map<std::string, ListedTable> AllKeys() { return ListKeys(MeshStrategy(), MakeModel); }

TEST(KeysTest, EveryKeyHasAMeaningAndEveryMeaningAKey) {
  std::set<std::string> listed, explained;
  for (const auto& [name, table] : AllKeys()) {
    for (const ListedKey& row : table.keys) {
      listed.insert(absl::StrCat(name, ".", row.key.name));
    }
  }
  for (const KeyMeaning& entry : KeyMeanings()) explained.emplace(entry.key);
  EXPECT_EQ(listed, explained);
}

TEST(KeysTest, ThePageIsAsTheReadersOfTheKeysAre) {
  const auto page = ReadFile("docs/configuration.md");
  ASSERT_TRUE(page.ok()) << page.status();
  const auto written = WithKeysSection(*page, KeysSection(AllKeys()));
  ASSERT_TRUE(written.ok()) << written.status();
  const auto [there, wanted] = std::ranges::mismatch(*page, *written);
  EXPECT_TRUE(*page == *written) << "docs/configuration.md is not current: run ./bazelw run "
                                    "//tools/keys. It goes on with '"
                                 << std::string(there, page->end()).substr(0, 200)
                                 << "' where the keys say '"
                                 << std::string(wanted, written->end()).substr(0, 200) << "'";
}

TEST(KeysTest, RowsSayForWhichKindsTheyAre) {
  const std::string section = KeysSection(AllKeys());
  EXPECT_THAT(section, HasSubstr("| `nesterov` | sgd | `false` | true or false |"));
  EXPECT_THAT(section, HasSubstr("| `beta2` | adamw | `0.999` | a number |"));
  EXPECT_THAT(section, HasSubstr("### `[model.experts]` with `model.kind = \"llama\"`"));
  EXPECT_THAT(section, HasSubstr("| `size` | required | a whole number |"));
}

TEST(KeysTest, TheSectionTakesTheOldOnesPlace) {
  EXPECT_EQ(*WithKeysSection("# A\n\n## All keys\n\nold\n\n## B\n", "## All keys\n\nnew\n\n"),
            "# A\n\n## All keys\n\nnew\n\n## B\n");
  EXPECT_EQ(*WithKeysSection("# A\n\n## All keys\n\nold\n", "## All keys\n\nnew\n"),
            "# A\n\n## All keys\n\nnew\n");
  EXPECT_FALSE(WithKeysSection("# A\n", "## All keys\n").ok());
}

}  // namespace
}  // namespace lockstep
