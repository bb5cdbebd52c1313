#include "tools/gathered_linear/demo.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/base/subprocess.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Sums of up to 1000 products of order 1, in fp32, relative to the largest element.
constexpr double kTolerance = 1e-5;

// What the whole layer makes, in plain loops and double precision.
struct Expected {
  std::vector<double> y, dx, dweight, dbias;

  explicit Expected(const GatheredLinear& demo) {
    const auto& [ranks, rows, in, out, seed] = demo.options;
    y.resize(rows * out);
    dx.resize(rows * in);
    dweight.resize(out * in);
    dbias.resize(out);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t o = 0; o < out; ++o) {
        const double dy = demo.dy[r * out + o];
        y[r * out + o] = demo.bias[o];
        dbias[o] += dy;
        for (int64_t i = 0; i < in; ++i) {
          const double x = demo.x[r * in + i], w = demo.weight[o * in + i];
          y[r * out + o] += x * w;
          dx[r * in + i] += dy * w;
          dweight[o * in + i] += dy * x;
        }
      }
    }
  }
};

// `actual` against what `expected` has from `first` on.
void ExpectNear(const std::vector<float>& actual, const std::vector<double>& expected,
                size_t first = 0) {
  ASSERT_LE(first + actual.size(), expected.size());
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[first + i], kTolerance * largest) << "element " << i;
  }
}

// The seeds' sizes; ranks whose slices differ by a row; one rank; a rank for every output.
TEST(GatheredLinearTest, EveryRankHasWhatPlainLoopsGive) {
  for (const GatheredLinearOptions& options :
       {GatheredLinearOptions{}, GatheredLinearOptions{.ranks = 4, .rows = 5, .in = 33, .out = 18},
        GatheredLinearOptions{.ranks = 3, .rows = 7, .in = 20, .out = 16},
        GatheredLinearOptions{.ranks = 1, .rows = 3, .in = 8, .out = 5},
        GatheredLinearOptions{.ranks = 5, .rows = 1, .in = 1, .out = 5}}) {
    SCOPED_TRACE(options.ranks);
    const auto demo = RunGatheredLinear(options);
    ASSERT_TRUE(demo.ok()) << demo.status();
    const Expected expected(*demo);
    int64_t next = 0;
    for (int i = 0; i < options.ranks; ++i) {
      const GatheredLinearRank& rank = demo->ranks[i];
      EXPECT_EQ(rank.first_output, next);
      next += rank.outputs;
      EXPECT_EQ(rank.weight, (Shape{rank.outputs, options.in}));
      EXPECT_EQ(rank.own_y, (Shape{options.rows, rank.outputs}));
      EXPECT_EQ(rank.y, (Shape{options.rows, options.out}));
      EXPECT_EQ(std::ssize(rank.outcome.dweight), rank.outputs * options.in);
      EXPECT_EQ(std::ssize(rank.outcome.dbias), rank.outputs);
      ExpectNear(rank.outcome.y, expected.y);
      ExpectNear(rank.outcome.dx, expected.dx);
      ExpectNear(rank.outcome.dweight, expected.dweight, rank.first_output * options.in);
      ExpectNear(rank.outcome.dbias, expected.dbias, rank.first_output);
      EXPECT_TRUE(demo->HasSameBits(i));
    }
    EXPECT_EQ(next, options.out);
    EXPECT_TRUE(demo->IsAsExpected());
  }
}

// Two ranks of the seeds' sizes: [32, 500] to the other rank, and half of an all-reduce of
// [32, 1000] twice.
TEST(GatheredLinearTest, SendsWhatTheFormulaSays) {
  const auto demo = RunGatheredLinear({});
  ASSERT_TRUE(demo.ok()) << demo.status();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(demo->ForwardBytes(rank), 32 * 500 * 4);
    EXPECT_EQ(demo->BackwardBytes(), 32 * 1000 * 4);
    EXPECT_EQ(demo->ranks[rank].traffic.All().wire_bytes, 64000 + 128000);
  }
}

TEST(GatheredLinearTest, SeesADifferentBit) {
  auto demo = RunGatheredLinear({.ranks = 2, .rows = 2, .in = 3, .out = 4});
  ASSERT_TRUE(demo.ok()) << demo.status();
  for (std::vector<float> LinearOutcome::*values :
       {&LinearOutcome::y, &LinearOutcome::dx, &LinearOutcome::dweight, &LinearOutcome::dbias}) {
    GatheredLinear changed = *demo;
    float& value = (changed.ranks[1].outcome.*values).back();
    value = std::nextafter(value, 2.0f);
    EXPECT_TRUE(changed.HasSameBits(0));
    EXPECT_FALSE(changed.HasSameBits(1));
    EXPECT_FALSE(changed.IsAsExpected());
    EXPECT_THAT(TextOf(changed), HasSubstr("different"));
  }
}

// The program, as a shell would run it.
ProcessResult RunProgram(std::vector<std::string> flags) {
  flags.insert(flags.begin(), "tools/gathered_linear/gathered_linear");
  const auto result = RunProcess({.arguments = std::move(flags)});
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : ProcessResult{};
}

TEST(GatheredLinearTest, PrintsShapesTrafficAndComparison) {
  const ProcessResult result = RunProgram({});
  EXPECT_TRUE(result.ok()) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("[500, 1000]"), HasSubstr("[32, 500]"), HasSubstr("[32, 1000]"),
                    HasSubstr("64000"), HasSubstr("128000"), HasSubstr("equal")));
  EXPECT_THAT(RunProgram({"--ranks", "4", "--out", "10"}).out, HasSubstr("[3, 1000]"));
}

TEST(GatheredLinearTest, RefusesSizesThatCannotBe) {
  for (const auto& [flags, message] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--ranks", "0"}, "from 1 to 16"},
           {{"--ranks", "4", "--out", "3"}, "from 4 to 8192"},
           {{"--rows", "0"}, "from 1 to 4096"},
           {{"--in", "9000"}, "from 1 to 8192"}}) {
    const ProcessResult result = RunProgram(flags);
    EXPECT_EQ(result.exit_code, 1) << result.Describe();
    EXPECT_THAT(result.err, HasSubstr(message));
  }
}

}  // namespace
}  // namespace lockstep
