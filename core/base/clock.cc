#include "core/base/clock.h"

#include <array>
#include <chrono>
#include <cmath>  // std::abs, std::floor, std::isfinite, std::llround
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"

namespace lockstep {
namespace {

// `value` with one digit after the point below `whole_from`, else none.
std::string Digits(double value, double whole_from) {
  // 9.96 with one digit is "10.0": round first, then choose.
  const double rounded = std::floor(value * 10 + 0.5) / 10;
  if (rounded < whole_from) return absl::StrFormat("%.1f", rounded);
  return absl::StrFormat("%.0f", value);
}

// Steps `value` down by `base` until it reads less than `base` with one digit after the point;
// returns the number of steps, at most `last`.
size_t Scale(double& value, double base, size_t last) {
  size_t unit = 0;
  while (unit < last && std::floor(value * 10 + 0.5) / 10 >= base) {
    value /= base;
    ++unit;
  }
  return unit;
}

std::string FormatPositiveDuration(double seconds) {
  constexpr std::array<const char*, 4> kSmallUnits = {"ns", "us", "ms", "s"};
  if (seconds < 0.9995) {
    double value = seconds * 1e9;
    const size_t unit = Scale(value, 1000, 3);
    return absl::StrFormat("%s %s", Digits(value, unit == 0 ? 0 : 100), kSmallUnits[unit]);
  }
  if (seconds < 59.95) return absl::StrFormat("%s s", Digits(seconds, 10));
  const int64_t whole = std::llround(seconds);
  constexpr int64_t kMinute = 60;
  constexpr int64_t kHour = 60 * kMinute;
  constexpr int64_t kDay = 24 * kHour;
  if (whole < kHour) return absl::StrFormat("%dm%02ds", whole / kMinute, whole % kMinute);
  if (whole < kDay) return absl::StrFormat("%dh%02dm", whole / kHour, whole % kHour / kMinute);
  return absl::StrFormat("%dd%02dh", whole / kDay, whole % kDay / kHour);
}

}  // namespace

int64_t NowNanos() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

double SecondsSince(int64_t begin_nanos) {
  return static_cast<double>(NowNanos() - begin_nanos) * 1e-9;
}

std::string FormatDuration(double seconds) {
  // Beyond a thousand years, which llround would not hold either, a number says nothing.
  if (!std::isfinite(seconds) || std::abs(seconds) > 3.2e10) return "?";
  if (seconds < 0) return "-" + FormatPositiveDuration(-seconds);
  return FormatPositiveDuration(seconds);
}

std::string FormatBytes(int64_t bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  if (std::abs(static_cast<double>(bytes)) < 1024) return absl::StrFormat("%d B", bytes);
  double value = std::abs(static_cast<double>(bytes));
  const size_t unit = Scale(value, 1024, kUnits.size() - 1);
  return absl::StrFormat("%s%.1f %s", bytes < 0 ? "-" : "", value, kUnits[unit]);
}

std::string FormatCount(int64_t count) {
  constexpr std::array<const char*, 5> kUnits = {"", "K", "M", "B", "T"};
  if (std::abs(static_cast<double>(count)) < 1000) return absl::StrFormat("%d", count);
  double value = std::abs(static_cast<double>(count));
  const size_t unit = Scale(value, 1000, kUnits.size() - 1);
  return absl::StrFormat("%s%.1f%s", count < 0 ? "-" : "", value, kUnits[unit]);
}

}  // namespace lockstep
