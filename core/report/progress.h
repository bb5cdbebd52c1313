// The line that shows a person how training goes:
//
//   step 1200/2000  loss 1.9321  12.3K tokens/s  1m42s left  1.2 GiB
//
// It is redrawn in place on a terminal, and nothing at all is written where there is none.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

class ProgressLine {
 public:
  struct Options {
    int64_t total_steps = 0;
    // What a step's `units` are: "samples" or "tokens".
    std::string unit = "samples";

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
    int64_t units = 0;         // samples or tokens of this step, over all ranks
    int64_t memory_bytes = 0;  // 0: not shown
  };

  // Options for the standard error stream. It counts as a terminal unless TERM says "dumb".
  static Options ForStderr(int64_t total_steps, const std::string& unit);

  explicit ProgressLine(Options options);

  // Finishes the line.
  ~ProgressLine();

  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  bool is_terminal() const { return options_.is_terminal; }

  // Call after each step. Redraws at most five times a second; costs a clock call otherwise.
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
  std::string Text() const;

  Options options_;
  Step last_;
  int64_t units_done_ = 0;   // in this process
  std::deque<Mark> marks_;   // the latest redraws, oldest first; speed is that from front to back
  bool is_stale_ = false;    // an Update came after the last redraw
  bool is_visible_ = false;  // the line stands on the screen, without line end
};

}  // namespace lockstep
