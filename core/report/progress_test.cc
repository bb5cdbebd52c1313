#include "core/report/progress.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>  // std::exchange

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kMillisecond = 1'000'000;
const char kErase[] = "\r\x1b[K";

// A terminal of memory, with a clock that the test moves.
struct FakeTerminal {
  std::string written;
  int columns = 100;
  int64_t nanos = 12'345;

  ProgressLine::Options Options(bool is_terminal = true) {
    return {
        .total_steps = 1000,
        .unit = "tokens",
        .is_terminal = is_terminal,
        .write = [this](std::string_view text) { written += text; },
        .columns = [this] { return columns; },
        .now_nanos = [this] { return nanos; },
    };
  }

  // What was written since the last call.
  std::string Take() { return std::exchange(written, ""); }
};

TEST(ProgressLineTest, ShowsSpeedAndTimeLeft) {
  FakeTerminal terminal;
  ProgressLine line(terminal.Options());
  line.Update({.number = 1, .loss = 4.25, .units = 768, .memory_bytes = 3 << 20});
  EXPECT_EQ(terminal.Take(), std::string(kErase) + "step 1/1000  loss 4.2500  3.0 MiB");
  terminal.nanos += 500 * kMillisecond;
  line.Update({.number = 2, .loss = 4.0, .units = 768, .memory_bytes = 3 << 20});
  // 768 tokens in half a second; 998 steps of half a second are 499 seconds.
  EXPECT_EQ(terminal.Take(),
            std::string(kErase) + "step 2/1000  loss 4.0000  1.5K tokens/s  8m19s left  3.0 MiB");
}

TEST(ProgressLineTest, CountsFromTheStepThatARunResumesAt) {
  FakeTerminal terminal;
  ProgressLine line(terminal.Options());
  line.Update({.number = 900, .units = 2});
  terminal.nanos += 1000 * kMillisecond;
  line.Update({.number = 901, .units = 2});
  EXPECT_THAT(terminal.Take(), HasSubstr("step 901/1000  loss 0.0000  2.00 tokens/s  1m39s left"));
}

TEST(ProgressLineTest, RedrawsAtMostFiveTimesASecond) {
  FakeTerminal terminal;
  ProgressLine line(terminal.Options());
  int redraws = 0;
  for (int64_t step = 1; step <= 1000; ++step) {  // ten seconds of steps of ten milliseconds
    line.Update({.number = step, .units = 1});
    if (!terminal.Take().empty()) ++redraws;
    terminal.nanos += 10 * kMillisecond;
  }
  EXPECT_EQ(redraws, 50);
  line.Update({.number = 1001, .units = 1});
  EXPECT_THAT(terminal.Take(), HasSubstr("100 tokens/s"));
}

TEST(ProgressLineTest, SpeedFollowsAChange) {
  FakeTerminal terminal;
  ProgressLine line(terminal.Options());
  for (int64_t step = 1; step <= 200; ++step) {
    line.Update({.number = step, .units = 50});
    terminal.nanos += (step < 100 ? 250 : 1000) * kMillisecond;
  }
  EXPECT_THAT(terminal.Take(), testing::EndsWith("50 tokens/s  13m20s left"));
}

TEST(ProgressLineTest, IsSilentWithoutATerminal) {
  FakeTerminal terminal;
  {
    ProgressLine line(terminal.Options(/*is_terminal=*/false));
    for (int64_t step = 1; step <= 10; ++step) {
      line.Update({.number = step});
      terminal.nanos += 1000 * kMillisecond;
    }
    line.Clear();
    line.Finish();
  }
  EXPECT_EQ(terminal.Take(), "");
}

TEST(ProgressLineTest, ALogGetsALineNowAndThen) {
  FakeTerminal terminal;
  auto options = terminal.Options(/*is_terminal=*/false);
  options.line_nanos = 30'000 * kMillisecond;
  options.columns = nullptr;  // a log has no width
  {
    ProgressLine line(options);
    for (int64_t step = 1; step <= 61; ++step) {
      line.Update({.number = step, .learning_rate = 6e-4, .gradient_norm = 1.375, .units = 50});
      const std::string written = terminal.Take();
      if (step == 31 || step == 61) {
        EXPECT_THAT(written, testing::EndsWith("left  rate 0.0006  norm 1.38\n"));
        EXPECT_THAT(written, testing::StartsWith("step "));
        EXPECT_THAT(written, HasSubstr("50 tokens/s"));
      } else {
        EXPECT_EQ(written, "") << step;
      }
      terminal.nanos += 1000 * kMillisecond;
    }
  }
  EXPECT_EQ(terminal.Take(), "") << "there is no line to end";
}

TEST(ProgressLineTest, MessagesStandAboveTheLine) {
  FakeTerminal terminal;
  ProgressLine line(terminal.Options());
  line.Print("hello");
  EXPECT_EQ(terminal.Take(), "hello\n");
  line.Update({.number = 1});
  terminal.Take();
  line.Print("validation loss 1.92");
  EXPECT_EQ(terminal.Take(),
            std::string(kErase) + "validation loss 1.92\n" + kErase + "step 1/1000  loss 0.0000");
  line.Clear();
  EXPECT_EQ(terminal.Take(), kErase);
  line.Clear();
  EXPECT_EQ(terminal.Take(), "");
  line.Finish();
  EXPECT_EQ(terminal.Take(), std::string(kErase) + "step 1/1000  loss 0.0000\n");

  ProgressLine quiet(terminal.Options(/*is_terminal=*/false));
  quiet.Print("validation loss 1.92");
  EXPECT_EQ(terminal.Take(), "validation loss 1.92\n");
}

TEST(ProgressLineTest, EndsWithTheLastStateAndALineEnd) {
  FakeTerminal terminal;
  {
    ProgressLine line(terminal.Options());
    line.Update({.number = 999, .loss = 2});
    terminal.nanos += kMillisecond;
    line.Update({.number = 1000, .loss = 1});
    EXPECT_THAT(terminal.Take(), Not(HasSubstr("1000/1000")));
    line.Finish();
    EXPECT_EQ(terminal.Take(), std::string(kErase) + "step 1000/1000  loss 1.0000\n");
  }
  EXPECT_EQ(terminal.Take(), "") << "finished twice";
}

TEST(ProgressLineTest, FitsTheWidth) {
  FakeTerminal terminal;
  ProgressLine line(terminal.Options());
  line.Update({.number = 1, .memory_bytes = 1024});
  terminal.Take();
  const std::string full = "step 2/1000  loss 0.0000  10 tokens/s  16m38s left  1.0 KiB";
  for (int columns = 0; columns <= 80; ++columns) {
    terminal.columns = columns;
    ProgressLine narrow(terminal.Options());
    narrow.Update({.number = 1, .memory_bytes = 1024});
    terminal.nanos += 1000 * kMillisecond;
    terminal.Take();
    narrow.Update({.number = 2, .units = 10, .memory_bytes = 1024});
    const std::string text = terminal.Take().substr(std::string(kErase).size());
    EXPECT_LT(static_cast<int>(text.size()), columns == 0 ? 1 : columns);
    EXPECT_EQ(text, full.substr(0, text.size()));
    EXPECT_EQ(text == full, columns > static_cast<int>(full.size())) << columns;
  }
}

}  // namespace
}  // namespace lockstep
