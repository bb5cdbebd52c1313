#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// Columns of text for a terminal, set to the right unless said otherwise.
class TextTable {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kRight;
  };

  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // Adds a row; cells that are not given are empty.
  void Add(std::vector<std::string> cells);

  // The titles and all rows, a line each, two spaces in from the margin.
  std::string ToString() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace lockstep
