#include "tools/report/text.h"

#include <algorithm>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

constexpr char kGap[] = "  ";

// Letters on the screen: bytes that go on with a letter of UTF-8 are none of their own.
size_t Width(const std::string& text) {
  return std::ranges::count_if(
      text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; });
}

}  // namespace

std::string TextOf(const Table& table) {
  std::vector<std::string> titles;
  for (const Table::Column& column : table.columns) titles.push_back(column.title);
  std::vector<std::vector<std::string>> lines = {titles};
  lines.insert(lines.end(), table.rows.begin(), table.rows.end());

  std::string text;
  for (const std::vector<std::string>& line : lines) {
    std::string row;
    for (size_t i = 0; i < table.columns.size(); ++i) {
      size_t width = 0;
      for (const auto& other : lines) width = std::max(width, Width(other[i]));
      const std::string space(width - Width(line[i]), ' ');
      const bool right = table.columns[i].align == Table::Align::kRight;
      absl::StrAppend(&row, kGap, right ? space : "", line[i], right ? "" : space);
    }
    row.erase(row.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, row, "\n");
  }
  return text;
}

std::string TextOf(const Report& report) {
  std::string text;
  for (const Section& section : report.sections) {
    const bool has_text = std::ranges::any_of(section.items, [](const auto& item) {
      return std::holds_alternative<Table>(item) || std::holds_alternative<Paragraph>(item);
    });
    if (!has_text) continue;
    absl::StrAppend(&text, "\n", section.title, "\n");
    bool after_table = false;
    for (const auto& item : section.items) {
      if (const auto* table = std::get_if<Table>(&item)) {
        const std::string title =
            table->title.empty() ? "" : absl::StrCat(kGap, table->title, "\n");
        absl::StrAppend(&text, after_table ? "\n" : "", title, TextOf(*table));
        after_table = true;
      } else if (const auto* paragraph = std::get_if<Paragraph>(&item)) {
        absl::StrAppend(&text, kGap, paragraph->text, "\n");
        after_table = paragraph->tone == Paragraph::Tone::kNote;  // belongs to it
      }
    }
  }
  return text;
}

}  // namespace lockstep
