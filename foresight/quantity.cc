#include "foresight/quantity.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

struct Prefix {
  const char* letters;
  double factor;
};
constexpr Prefix kDecimal[] = {{"", 1},     {"k", 1e3},  {"M", 1e6}, {"G", 1e9},
                               {"T", 1e12}, {"P", 1e15}, {"E", 1e18}};
constexpr Prefix kBinary[] = {
    {"Ki", 0x1p10}, {"Mi", 0x1p20}, {"Gi", 0x1p30}, {"Ti", 0x1p40}, {"Pi", 0x1p50}};

// What a unit counts, without its prefix.
struct Unit {
  const char* name;
  double factor;
};
std::vector<Unit> UnitsOf(Dimension dimension) {
  switch (dimension) {
    case Dimension::kBytes:
      return {{"B", 1}};
    case Dimension::kSeconds:
      return {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
    case Dimension::kFlops:
      return {{"FLOP", 1}};
    case Dimension::kFlopsPerSecond:
      return {{"FLOP/s", 1}};
    case Dimension::kBytesPerSecond:
      return {{"B/s", 1}, {"bit/s", 0.125}, {"bit", 0.125}};
  }
  return {};
}

std::string Examples(Dimension dimension) {
  switch (dimension) {
    case Dimension::kBytes:
      return "\"80 GB\" or \"40 GiB\"";
    case Dimension::kSeconds:
      return "\"2.5 us\" or \"3 ms\"";
    case Dimension::kFlops:
      return "\"1e21 FLOP\"";
    case Dimension::kFlopsPerSecond:
      return "\"312 TFLOP/s\"";
    case Dimension::kBytesPerSecond:
      return "\"2.04 TB/s\" or \"100 Gbit/s\"";
  }
  return "";
}

std::optional<double> FactorOf(absl::string_view unit, Dimension dimension) {
  for (const auto& [name, factor] : UnitsOf(dimension)) {
    absl::string_view prefix = unit;
    if (!absl::ConsumeSuffix(&prefix, name)) continue;
    if (dimension == Dimension::kSeconds && !prefix.empty()) continue;
    for (const Prefix& known : kDecimal) {
      if (prefix == known.letters) return factor * known.factor;
    }
    for (const Prefix& known : kBinary) {
      if (prefix == known.letters && absl::StartsWith(name, "B")) return factor * known.factor;
    }
  }
  return std::nullopt;
}

// Where the number ends: behind digits, a point, signs, and an exponent, which an "E" of exa is
// only where digits follow.
size_t NumberEnd(absl::string_view text) {
  size_t end = 0;
  while (end < text.size()) {
    const char c = text[end];
    const bool exponent =
        (c == 'e' || c == 'E') && end + 1 < text.size() &&
        (absl::ascii_isdigit(text[end + 1]) ||
         (end + 2 < text.size() && (text[end + 1] == '+' || text[end + 1] == '-') &&
          absl::ascii_isdigit(text[end + 2])));
    if (!absl::ascii_isdigit(c) && c != '.' && c != '-' && c != '+' && !exponent) break;
    end += exponent ? 2 : 1;
  }
  return end;
}

}  // namespace

absl::StatusOr<double> ParseQuantity(absl::string_view text, Dimension dimension) {
  const absl::string_view trimmed = absl::StripAsciiWhitespace(text);
  const size_t end = NumberEnd(trimmed);
  double number = 0;
  const std::optional<double> factor =
      FactorOf(absl::StripLeadingAsciiWhitespace(trimmed.substr(end)), dimension);
  if (!factor || !absl::SimpleAtod(trimmed.substr(0, end), &number)) {
    return InvalidArgument("'", text, "' is no such quantity; write it as ", Examples(dimension));
  }
  // The unit may be what makes it too large: "1e300 EB".
  const double value = number * *factor;
  if (!(value >= 0 && value <= kLargestQuantity)) {
    return InvalidArgument("'", text, "' must be finite and not below zero, and at most 1e300");
  }
  return value;
}

std::string FormatQuantity(double value, Dimension dimension) {
  if (dimension == Dimension::kSeconds) {
    const auto [factor, unit] = value >= 1      ? std::pair(1.0, "s")
                                : value >= 1e-3 ? std::pair(1e3, "ms")
                                : value >= 1e-6 ? std::pair(1e6, "us")
                                                : std::pair(1e9, "ns");
    return absl::StrFormat("%.3g %s", value * factor, unit);
  }
  const Prefix* prefix = &kDecimal[0];
  for (const Prefix& larger : kDecimal) {
    if (value >= larger.factor * 0.9995) prefix = &larger;
  }
  return absl::StrFormat("%.3g %s%s", value / prefix->factor, prefix->letters,
                         UnitsOf(dimension)[0].name);
}

}  // namespace lockstep
