#include "tools/draw/svg.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace lockstep {

std::string OpenPicture(double width, double height, const std::string& title,
                        const std::string& subtitle) {
  return absl::StrCat(
      absl::StrFormat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
                      "viewBox=\"0 0 %.0f %.0f\" role=\"img\" "
                      "font-family=\"system-ui, 'Segoe UI', Helvetica, Arial, sans-serif\">\n"
                      "<title>%s</title>\n",
                      width, height, width, height, Escaped(title)),
      SvgRectangle({0, 0, width, height}, 14, "fill=\"white\""),
      SvgText(kMargin, 38, title, {.size = 18, .weight = "bold"}),
      SvgText(kMargin, 61, subtitle, {.colour = kSoftInk}));
}

std::string SvgRankLabel(double x, double middle_y, size_t rank) {
  return SvgText(x, middle_y + 4.5, absl::StrCat("rank ", rank), {.colour = kSoftInk});
}

double TextWidth(const std::string& text, double size) {
  constexpr double kDigit = 0.59;  // of its height; most letters are narrower
  return kDigit * size * static_cast<double>(text.size());
}

std::string SvgText(double x, double y, const std::string& text, const TextStyle& style) {
  return absl::StrFormat(
      "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%g\" fill=\"%s\" text-anchor=\"%s\" "
      "font-weight=\"%s\">%s</text>\n",
      x, y, style.size, style.colour, style.anchor, style.weight, Escaped(text));
}

std::string SvgRectangle(const Box& box, double radius, const std::string& attributes,
                         const std::string& tooltip) {
  const std::string end =
      tooltip.empty() ? "/>\n" : absl::StrCat("><title>", Escaped(tooltip), "</title></rect>\n");
  return absl::StrFormat(
      "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"%g\" %s%s", box.x, box.y,
      box.width, box.height, radius, attributes, end);
}

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

}  // namespace lockstep
