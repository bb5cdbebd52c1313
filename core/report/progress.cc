#include "core/report/progress.h"

#include <stdio.h>      // fwrite, stderr
#include <sys/ioctl.h>  // TIOCGWINSZ
#include <unistd.h>     // isatty

#include <algorithm>  // std::max
#include <cmath>      // std::ceil, std::llround
#include <cstddef>
#include <cstdlib>  // std::getenv
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/clock.h"

namespace lockstep {
namespace {

constexpr int64_t kRedrawNanos = 200'000'000;
// Speed is averaged over this many redraws: ten seconds of short steps, or fifty long steps. Long
// enough to be read, short enough to follow a change.
constexpr size_t kMarks = 51;
constexpr int kUsualColumns = 80;
// Back to the first column; erase to the end of the line.
constexpr char kEraseLine[] = "\r\x1b[K";

int StderrColumns() {
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsualColumns;
}

}  // namespace

ProgressLine::Options ProgressLine::ForStderr(int64_t total_steps, const std::string& unit,
                                              int64_t line_nanos) {
  const char* terminal = std::getenv("TERM");
  const bool is_dumb = terminal == nullptr || std::string_view(terminal) == "dumb";
  return {
      .total_steps = total_steps,
      .unit = unit,
      .line_nanos = line_nanos,
      .is_terminal = isatty(STDERR_FILENO) == 1 && !is_dumb,
      .write = [](std::string_view text) { fwrite(text.data(), 1, text.size(), stderr); },
      .columns = StderrColumns,
      .now_nanos = NowNanos,
  };
}

ProgressLine::ProgressLine(Options options) : options_(std::move(options)) {}

ProgressLine::~ProgressLine() { Finish(); }

void ProgressLine::Update(const Step& step) {
  if (!options_.is_terminal && options_.line_nanos == 0) return;
  const int64_t now = options_.now_nanos();
  const int64_t pause = options_.is_terminal ? kRedrawNanos : options_.line_nanos;
  last_ = step;
  is_stale_ = true;
  units_done_ += step.units;
  // Speed is measured from the end of the first step, which was slow: it warmed everything up.
  if (!marks_.empty() && now - marks_.back().nanos < pause) return;
  marks_.push_back({.nanos = now, .step = step.number, .units = units_done_});
  if (marks_.size() > kMarks) marks_.pop_front();
  if (options_.is_terminal) {
    Draw();
  } else if (marks_.size() > 1) {
    options_.write(Text(std::string::npos) + "\n");
  }
}

void ProgressLine::Print(std::string_view message) {
  const bool was_visible = is_visible_;
  Clear();
  options_.write(std::string(message) + "\n");
  if (was_visible) Draw();
}

void ProgressLine::Clear() {
  if (!is_visible_) return;
  options_.write(kEraseLine);
  is_visible_ = false;
  is_stale_ = true;  // Finish shows it again
}

void ProgressLine::Finish() {
  if (is_stale_ && options_.is_terminal) Draw();
  if (is_visible_) options_.write("\n");
  is_visible_ = false;
}

void ProgressLine::Draw() {
  // A character in the last column would make some terminals begin a new line.
  options_.write(kEraseLine + Text(static_cast<size_t>(std::max(options_.columns() - 1, 0))));
  is_visible_ = true;
  is_stale_ = false;
}

std::string ProgressLine::Text(size_t columns) const {
  // In order of weight: what does not fit is left out from the end.
  std::vector<std::string> fields;
  fields.push_back(absl::StrFormat("step %d/%d", last_.number, options_.total_steps));
  fields.push_back(absl::StrFormat("loss %.4f", last_.loss));
  const Mark& from = marks_.front();
  const double seconds = static_cast<double>(marks_.back().nanos - from.nanos) * 1e-9;
  const int64_t steps = marks_.back().step - from.step;
  if (seconds > 0 && steps > 0) {
    const double speed = static_cast<double>(marks_.back().units - from.units) / seconds;
    fields.push_back(
        speed < 10 ? absl::StrFormat("%.2f %s/s", speed, options_.unit)
                   : absl::StrCat(FormatCount(std::llround(speed)), " ", options_.unit, "/s"));
    if (const int64_t left = options_.total_steps - last_.number; left > 0) {
      const double seconds_a_step = seconds / static_cast<double>(steps);
      // Whole seconds: nobody can read tenths that change.
      fields.push_back(FormatDuration(std::ceil(seconds_a_step * static_cast<double>(left))) +
                       " left");
    }
  }
  if (last_.memory_bytes > 0) fields.push_back(FormatBytes(last_.memory_bytes));
  if (last_.learning_rate > 0) fields.push_back(absl::StrFormat("rate %g", last_.learning_rate));
  if (last_.gradient_norm > 0) fields.push_back(absl::StrFormat("norm %.3g", last_.gradient_norm));

  std::string text;
  for (const std::string& field : fields) {
    const std::string longer = absl::StrCat(text, text.empty() ? "" : "  ", field);
    if (longer.size() > columns) break;
    text = longer;
  }
  return text;
}

}  // namespace lockstep
