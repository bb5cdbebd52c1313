#include "tools/compare/text_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

constexpr char kGap[] = "  ";

}  // namespace

void TextTable::Add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::ToString() const {
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  std::vector<std::vector<std::string>> lines = {titles};
  lines.insert(lines.end(), rows_.begin(), rows_.end());

  std::string text;
  for (const std::vector<std::string>& line : lines) {
    std::string row;
    for (size_t i = 0; i < columns_.size(); ++i) {
      size_t width = 0;
      for (const auto& other : lines) width = std::max(width, other[i].size());
      const std::string space(width - line[i].size(), ' ');
      absl::StrAppend(&row, kGap, columns_[i].align == Align::kRight ? space : "", line[i],
                      columns_[i].align == Align::kLeft ? space : "");
    }
    row.erase(row.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, row, "\n");
  }
  return text;
}

}  // namespace lockstep
