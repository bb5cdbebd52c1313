// Pieces of an SVG document. Pictures are complete in themselves: no scripts, fonts or styles from
// elsewhere.

#pragma once

#include <string>

namespace lockstep {

// In units of SVG user space (a pixel), y downwards.
struct Box {
  double x = 0, y = 0, width = 0, height = 0;

  double right() const { return x + width; }
  double bottom() const { return y + height; }
  double middle_x() const { return x + width / 2; }
  double middle_y() const { return y + height / 2; }
};

// For text, for text of less weight, and for thin lines.
inline constexpr char kInk[] = "#1b2330";
inline constexpr char kSoftInk[] = "#5a6475";
inline constexpr char kLine[] = "#c3cad5";

struct TextStyle {
  double size = 13;
  const char* colour = kInk;
  const char* anchor = "start";
  const char* weight = "normal";
};

// What is the same around all pictures: a margin, the width of "rank 63", and the height of title,
// subtitle and the space to what follows.
inline constexpr double kMargin = 28, kRankLabelWidth = 64, kHeaderHeight = 88;

// The beginning of a document, which "</svg>\n" ends: a white ground, so that it reads in a dark
// page too, title and subtitle.
std::string OpenPicture(double width, double height, const std::string& title,
                        const std::string& subtitle);

// "rank 3" from `x` on, beside a row whose middle is at `middle_y`.
std::string SvgRankLabel(double x, double middle_y, size_t rank);

// About how wide a viewer's font sets `text`.
double TextWidth(const std::string& text, double size);

std::string SvgText(double x, double y, const std::string& text, const TextStyle& style);

// `tooltip` is what a viewer shows of it under the pointer; empty: nothing.
std::string SvgRectangle(const Box& box, double radius, const std::string& attributes,
                         const std::string& tooltip = "");

// `text` with &, <, > and quotes escaped, for XML and HTML.
std::string Escaped(const std::string& text);

}  // namespace lockstep
