#include "foresight/expression.h"

#include <string>

#include "core/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// x is 3, y.rows is 7.
absl::StatusOr<double> Evaluate(const std::string& text) {
  LS_ASSIGN_OR_RETURN(const Expression expression,
                      Expression::Parse(text, [](absl::string_view name) -> absl::StatusOr<int> {
                        if (name == "x") return 0;
                        if (name == "y.rows") return 1;
                        return InvalidArgument("'", name, "' is unknown");
                      }));
  return expression.Evaluate({3, 7});
}

TEST(ExpressionTest, Computes) {
  EXPECT_EQ(Evaluate("2.5 x").value(), 7.5);
  EXPECT_EQ(Evaluate("1 + 2 x * y.rows - 4").value(), 39);
  EXPECT_EQ(Evaluate("6 / 2 x").value(), 1);
  EXPECT_EQ(Evaluate("8 - 2 - 1").value(), 5);
  EXPECT_EQ(Evaluate("2(x + 1) % 5").value(), 3);
  EXPECT_EQ(Evaluate("max(x, y.rows) / min(2, x)").value(), 3.5);
  EXPECT_EQ(Evaluate("x == 3 && y.rows >= 8").value(), 0);
  EXPECT_EQ(Evaluate("(x != 3) + (x < 4) + (x <= 3) + (x > 2)").value(), 3);
  EXPECT_EQ(Evaluate("1e-3 x").value(), 3e-3);
}

TEST(ExpressionTest, SaysWhatIsWrong) {
  const auto message = [](const std::string& text) {
    return std::string(Evaluate(text).status().message());
  };
  EXPECT_THAT(message("2 z"), AllOf(HasSubstr("'2 z'"), HasSubstr("'z' is unknown")));
  EXPECT_THAT(message("2 +"), HasSubstr("ends early"));
  EXPECT_THAT(message("(x"), HasSubstr("')' is missing"));
  EXPECT_THAT(message("x x"), HasSubstr("unexpected"));
  EXPECT_THAT(message("min(x)"), HasSubstr("two arguments"));
  EXPECT_THAT(message("1.2.3"), HasSubstr("no number"));
}

}  // namespace
}  // namespace lockstep
