#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lockstep {

// A formula over named numbers, such as "2.5 scores", "x + y / 2" or "min(rows, 128) == rows".
//
// It has numbers, names (letters, digits, '_' and '.'), parentheses, min(a, b), max(a, b), the
// operators + - * / %, comparisons and "&&" (1 or 0). A number before a name or a parenthesis
// multiplies it and binds tightest: "1 / 2 x" is 1 / (2 x).
class Expression {
 public:
  // The formula "0".
  Expression() : operations_({{.code = Code::kNumber}}) {}

  // `slot_of` gives a name's place among the values of Evaluate, or an error that is returned.
  // InvalidArgument, with the text, for what is no formula.
  static absl::StatusOr<Expression> Parse(
      absl::string_view text, absl::FunctionRef<absl::StatusOr<int>(absl::string_view)> slot_of);

  double Evaluate(absl::Span<const double> values) const;

 private:
  friend class ExpressionParser;
  enum class Code : uint8_t {
    kNumber,
    kName,
    kAdd,
    kSubtract,
    kMultiply,
    kDivide,
    kModulo,
    kMin,
    kMax,
    kEqual,
    kDiffers,
    kLess,
    kGreater,
    kAtMost,
    kAtLeast,
    kAnd,
  };
  struct Operation {
    Code code;
    double number = 0;
    int slot = 0;
  };
  static constexpr int kMostStacked = 16;

  std::vector<Operation> operations_;  // operands before their operator
};

}  // namespace lockstep
