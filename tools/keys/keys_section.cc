#include "tools/keys/keys_section.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/config/key_meanings.h"

namespace lockstep {
namespace {

constexpr char kHeading[] = "## All keys\n";

std::string Code(const std::string& text) { return absl::StrCat("`", text, "`"); }

std::string Values(const RecordedKey& key) {
  if (key.choices.empty()) return key.expected;
  return absl::StrJoin(key.choices, ", ", [](std::string* out, const std::string& choice) {
    absl::StrAppend(out, "`\"", choice, "\"`");
  });
}

std::string Row(const std::string& table, const ListedTable& listed, const ListedKey& row) {
  const std::string by_default = DefaultOf(row.key);
  std::string text = absl::StrCat("| ", Code(row.key.name), " |");
  if (!listed.selector.empty()) absl::StrAppend(&text, " ", absl::StrJoin(row.kinds, ", "), " |");
  absl::StrAppend(&text, " ", by_default.empty() ? "required" : Code(by_default), " | ",
                  Values(row.key), " | ",
                  std::string(MeaningOf(absl::StrCat(table, ".", row.key.name))), " |\n");
  return text;
}

}  // namespace

std::string KeysSection(const std::map<std::string, ListedTable>& tables) {
  std::string text = absl::StrCat(
      kHeading,
      "\nWith the defaults of `mesh`, and of `lora` and experts where they are asked for. "
      "`./bazelw run //tools/keys` writes this section.\n");
  for (const auto& [name, table] : tables) {
    absl::StrAppend(&text, "\n### `[", name, "]`",
                    table.only_with.empty() ? "" : absl::StrCat(" with `", table.only_with, "`"),
                    "\n\n");
    const std::string kinds =
        table.selector.empty() ? "" : absl::StrCat(" with ", Code(table.selector), " |");
    absl::StrAppend(&text, "| key |", kinds, " default | value | meaning |\n|---|",
                    kinds.empty() ? "" : "---|", "---|---|---|\n");
    for (const ListedKey& row : table.keys) text += Row(name, table, row);
  }
  return text + "\n";
}

absl::StatusOr<std::string> WithKeysSection(const std::string& page, const std::string& section) {
  const size_t begin = page.find(kHeading);
  if (begin == std::string::npos) {
    return InvalidArgument("the page has no section '## All keys'; add the heading");
  }
  const size_t end = std::min(page.find("\n## ", begin), page.size() - 1) + 1;
  return page.substr(0, begin) + section + page.substr(end);
}

}  // namespace lockstep
