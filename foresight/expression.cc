#include "foresight/expression.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "core/base/status.h"

namespace lockstep {

// Parses by recursive descent; each method consumes what it is named after.
class ExpressionParser {
 public:
  using Code = Expression::Code;
  using SlotOf = absl::FunctionRef<absl::StatusOr<int>(absl::string_view)>;

  ExpressionParser(absl::string_view text, SlotOf slot_of)
      : text_(text), rest_(text), slot_of_(slot_of) {
    expression_.operations_.clear();
  }

  absl::StatusOr<Expression> Whole() {
    LS_RETURN_IF_ERROR(And());
    Skip();
    if (!rest_.empty()) return Error("unexpected ", "'", rest_, "'");
    return std::move(expression_);
  }

 private:
  struct Operator {
    absl::string_view text;
    Code code;
  };

  template <typename... Parts>
  absl::Status Error(const Parts&... parts) const {
    return InvalidArgument("'", text_, "' is no formula: ", parts...);
  }

  absl::Status And() {
    return Chain({{"&&", Code::kAnd}}, [this] { return Comparison(); });
  }
  absl::Status Comparison() {
    return Chain({{"==", Code::kEqual},
                  {"!=", Code::kDiffers},
                  {"<=", Code::kAtMost},
                  {">=", Code::kAtLeast},
                  {"<", Code::kLess},
                  {">", Code::kGreater}},
                 [this] { return Sum(); });
  }
  absl::Status Sum() {
    return Chain({{"+", Code::kAdd}, {"-", Code::kSubtract}}, [this] { return Product(); });
  }
  absl::Status Product() {
    return Chain({{"*", Code::kMultiply}, {"/", Code::kDivide}, {"%", Code::kModulo}},
                 [this] { return Factor(); });
  }

  absl::Status Factor() {
    Skip();
    if (rest_.empty()) return Error("it ends early");
    if (absl::ascii_isdigit(rest_[0]) || rest_[0] == '.') {
      LS_RETURN_IF_ERROR(Number());
      Skip();
      if (rest_.empty() || (rest_[0] != '(' && !IsLetter(rest_[0]))) return absl::OkStatus();
      LS_RETURN_IF_ERROR(Factor());
      Emit(Code::kMultiply);
      return absl::OkStatus();
    }
    if (absl::ConsumePrefix(&rest_, "(")) return Closed();
    if (IsLetter(rest_[0])) return NameOrCall();
    return Error("unexpected '", rest_, "'");
  }

  absl::Status Number() {
    size_t end = 0;
    while (end < rest_.size()) {
      const char c = rest_[end];
      const bool exponent =
          c == 'e' && end + 1 < rest_.size() &&
          (absl::ascii_isdigit(rest_[end + 1]) || rest_[end + 1] == '-' || rest_[end + 1] == '+');
      if (!absl::ascii_isdigit(c) && c != '.' && !exponent) break;
      end += exponent ? 2 : 1;
    }
    double number = 0;
    if (!absl::SimpleAtod(rest_.substr(0, end), &number)) {
      return Error("'", rest_.substr(0, end), "' is no number");
    }
    rest_.remove_prefix(end);
    expression_.operations_.push_back({.code = Code::kNumber, .number = number});
    ++depth_;
    return absl::OkStatus();
  }

  absl::Status NameOrCall() {
    size_t end = 0;
    while (end < rest_.size() &&
           (IsLetter(rest_[end]) || absl::ascii_isdigit(rest_[end]) || rest_[end] == '.')) {
      ++end;
    }
    const absl::string_view name = rest_.substr(0, end);
    rest_.remove_prefix(end);
    if ((name == "min" || name == "max") && absl::ConsumePrefix(&rest_, "(")) {
      LS_RETURN_IF_ERROR(And());
      Skip();
      if (!absl::ConsumePrefix(&rest_, ",")) return Error(name, " takes two arguments");
      LS_RETURN_IF_ERROR(Closed());
      Emit(name == "min" ? Code::kMin : Code::kMax);
      return absl::OkStatus();
    }
    const absl::StatusOr<int> slot = slot_of_(name);
    if (!slot.ok()) return Error(slot.status().message());
    expression_.operations_.push_back({.code = Code::kName, .slot = *slot});
    ++depth_;
    return absl::OkStatus();
  }

  absl::Status Closed() {
    LS_RETURN_IF_ERROR(And());
    Skip();
    if (!absl::ConsumePrefix(&rest_, ")")) return Error("a ')' is missing");
    return absl::OkStatus();
  }

  template <typename Operand>
  absl::Status Chain(std::initializer_list<Operator> operators, Operand operand) {
    LS_RETURN_IF_ERROR(operand());
    while (true) {
      Skip();
      const auto* found = std::find_if(operators.begin(), operators.end(), [&](const Operator& o) {
        return absl::StartsWith(rest_, o.text);
      });
      if (found == operators.end()) return absl::OkStatus();
      rest_.remove_prefix(found->text.size());
      LS_RETURN_IF_ERROR(operand());
      if (depth_ > Expression::kMostStacked) return Error("it nests too deeply");
      Emit(found->code);
    }
  }

  void Emit(Code code) {
    expression_.operations_.push_back({.code = code});
    --depth_;
  }
  void Skip() { rest_ = absl::StripLeadingAsciiWhitespace(rest_); }
  static bool IsLetter(char c) { return absl::ascii_isalpha(c) || c == '_'; }

  absl::string_view text_, rest_;
  SlotOf slot_of_;
  Expression expression_;
  int depth_ = 0;  // operands on the stack
};

absl::StatusOr<Expression> Expression::Parse(
    absl::string_view text, absl::FunctionRef<absl::StatusOr<int>(absl::string_view)> slot_of) {
  return ExpressionParser(text, slot_of).Whole();
}

double Expression::Evaluate(absl::Span<const double> values) const {
  std::array<double, kMostStacked + 1> stack;
  int top = -1;
  for (const Operation& operation : operations_) {
    if (operation.code == Code::kNumber || operation.code == Code::kName) {
      stack[++top] = operation.code == Code::kNumber ? operation.number : values[operation.slot];
      continue;
    }
    const double b = stack[top--];
    double& a = stack[top];
    switch (operation.code) {
      case Code::kAdd:
        a += b;
        break;
      case Code::kSubtract:
        a -= b;
        break;
      case Code::kMultiply:
        a *= b;
        break;
      case Code::kDivide:
        a /= b;
        break;
      case Code::kModulo:
        a = std::fmod(a, b);
        break;
      case Code::kMin:
        a = std::min(a, b);
        break;
      case Code::kMax:
        a = std::max(a, b);
        break;
      case Code::kEqual:
        a = a == b;
        break;
      case Code::kDiffers:
        a = a != b;
        break;
      case Code::kLess:
        a = a < b;
        break;
      case Code::kGreater:
        a = a > b;
        break;
      case Code::kAtMost:
        a = a <= b;
        break;
      case Code::kAtLeast:
        a = a >= b;
        break;
      default:
        a = a != 0 && b != 0;
        break;
    }
  }
  return stack[0];
}

}  // namespace lockstep
