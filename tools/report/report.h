// What a tool has to show, apart from how: text.h sets it for a terminal, html.h makes a page of
// it.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

// Columns of text, set to the right unless said otherwise.
struct Table {
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kRight;
  };

  std::string title = {};  // above it; may be empty
  std::vector<Column> columns = {};
  std::vector<std::vector<std::string>> rows = {};

  // Cells that are not given are empty.
  void Add(std::vector<std::string> cells) {
    cells.resize(columns.size());
    rows.push_back(std::move(cells));
  }
};

struct Paragraph {
  enum class Tone {
    kPlain,
    kNote,  // less than the others: on the table above it
    kWarning,
  };
  std::string text;
  Tone tone = Tone::kPlain;
};

// What numbers are, for axes and labels: seconds read "3.2 ms", bytes "1.5 MiB".
enum class Quantity { kNumber, kSeconds, kBytes };

// Curves over one number.
struct LineChart {
  enum class Style {
    kPlain,
    kWide,     // pale and broad: others that cover it leave it to be seen
    kInTurns,  // dashed, so that such lines, where they cover each other, show in turns
  };
  struct Line {
    std::string name;
    int colour = 0;  // tools/draw/palette.h
    std::vector<std::pair<double, double>> points =
        {};  // x ascending; a y that is not finite: a gap
    Style style = Style::kPlain;
  };
  struct Axis {
    std::string title = {};
    Quantity quantity = Quantity::kNumber;
    bool logarithmic = false;
    bool whole = false;      // of whole numbers, such as steps: only these are marked
    bool from_zero = false;  // begins there
    double least_range = 0;  // the axis reaches from minus to plus this at least; 0: as the data
  };

  Axis x = {}, y = {};
  bool stacked = false;  // areas on top of each other, in steps: a value holds up to the next
  std::vector<Line> lines = {};
};

// Bars, a row each, of segments that lie end to end.
struct BarChart {
  struct Segment {
    std::string name;
    int colour = 0;
    std::vector<double> values = {};  // one a row
  };

  Quantity quantity = Quantity::kNumber;
  std::vector<std::string> rows = {};
  std::vector<Segment> segments = {};
};

// What happened when, in seconds, a line a row.
struct SpanChart {
  struct Span {
    int row;
    double begin, end;
    std::string label = {};  // for the pointer that rests on it
  };
  struct Kind {
    std::string name;
    int colour = 0;
    bool pale = false;  // what is less than the others, such as waiting
    std::vector<Span> spans = {};
  };

  double seconds = 0;  // that the axis shows, from 0
  std::vector<std::string> rows = {};
  std::vector<Kind> kinds = {};
};

struct Chart {
  std::string id;  // letters, digits, _ and -; no two of a report are alike
  std::string title;
  std::variant<LineChart, BarChart, SpanChart> body;
};

// A picture and lines as they are: for pages alone.
struct Drawing {
  std::string svg;  // a whole document (tools/draw)
};
struct Listing {
  std::string text;
};

struct Section {
  using Item = std::variant<Paragraph, Table, Chart, Drawing, Listing>;
  std::string title;
  std::vector<Item> items = {};
};

struct Report {
  std::string title;
  std::vector<Section> sections = {};
};

}  // namespace lockstep
