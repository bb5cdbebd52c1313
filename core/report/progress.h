// The line that shows a person how training goes:
//
//   step 1200/2000  loss 1.9321  12.3K tokens/s  1m42s left  1.2 GiB  rate 0.0006  norm 1.37
//
// It is redrawn in place on a terminal. Where there is none, a log gets it as a line of its own now
// and then, or never.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

class ProgressLine {
 public:
  // Between the lines of a log.
  static constexpr int64_t kLineNanos = 30'000'000'000;

  struct Options {
    int64_t total_steps = 0;
    // What a step's `units` are: "samples" or "tokens".
    std::string unit = "samples";

    int64_t line_nanos = 0;  // between lines where there is no terminal; 0: none are written

    // The world around; ForStderr fills these in.
    bool is_terminal = false;
    std::function<void(std::string_view)> write = nullptr;  // takes text with control sequences
    std::function<int()> columns = nullptr;  // width of the terminal, asked at each redraw
    std::function<int64_t()> now_nanos = nullptr;
  };

  // What is known when a step is done.
  struct Step {
    int64_t number = 0;  // steps done so far, 1-based
    double loss = 0;
    double learning_rate = 0;  // 0: not shown
    double gradient_norm = 0;  // 0: not shown
    int64_t units = 0;         // samples or tokens of this step, over all ranks
    int64_t memory_bytes = 0;  // 0: not shown
  };

  // Options for the standard error stream. It counts as a terminal unless TERM says "dumb".
  static Options ForStderr(int64_t total_steps, const std::string& unit, int64_t line_nanos);

  explicit ProgressLine(Options options);

  // Finishes the line.
  ~ProgressLine();

  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  bool is_terminal() const { return options_.is_terminal; }

  // Call after each step. Redraws at most five times a second, or writes a line every
  // `line_nanos`, the first one that long after the first step; costs a clock call otherwise.
  void Update(const Step& step);

  // Writes a message of its own above the line, terminal or not. `message` needs no line end.
  void Print(std::string_view message);

  // Takes the line off the screen, for somebody else who writes there; the next Update draws it.
  void Clear();

  // Draws the last state and ends the line. Later calls do nothing until the next Update.
  void Finish();

 private:
  // The state at one redraw, from which speed is measured.
  struct Mark {
    int64_t nanos = 0;
    int64_t step = 0;
    int64_t units = 0;
  };

  void Draw();
  // What of the state fits into `columns`.
  std::string Text(size_t columns) const;

  Options options_;
  Step last_;
  int64_t units_done_ = 0;   // in this process
  std::deque<Mark> marks_;   // the latest redraws, oldest first; speed is that from front to back
  bool is_stale_ = false;    // an Update came after the last redraw
  bool is_visible_ = false;  // the line stands on the screen, without line end
};

}  // namespace lockstep
