// Passing errors on: what a user or the environment can cause travels as absl::Status.

#pragma once

#include <exception>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"  // IWYU pragma: export
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lockstep {

// Returns an error that the user can mend. The message is the parts, joined as absl::StrCat does.
template <typename... Parts>
absl::Status InvalidArgument(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// Puts `context` before the message of an error: Annotate(status, "while reading a.toml") reads
// "while reading a.toml: <the message>". Code and payloads stay; an OK status stays as it is.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

// Both errors as one, a line each or more, with the code of the first; the one that is an error if
// only one is; OK if none is. For checks whose problems a user wants to see all at once.
absl::Status Both(const absl::Status& first, const absl::Status& second);

// Writes the message of an error to the standard error: a program's last words.
void PrintError(const absl::Status& error);

// Carries a status out of the depth of a forward or backward pass, where a model's code could not
// hand on a StatusOr at every operation: no memory, a dead peer, a device that failed. Whoever runs
// the pass catches it at the step's boundary and returns the status; nothing else is thrown.
class StatusException : public std::exception {
 public:
  explicit StatusException(absl::Status status)
      : status_(std::move(status)), what_(status_.ToString()) {}

  const absl::Status& status() const { return status_; }
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  absl::Status status_;
  std::string what_;
};

// Throws an error as StatusException; does nothing when OK. For use inside a pass only.
inline void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) throw StatusException(status);
}

}  // namespace lockstep

// Returns from the enclosing function, which returns Status or StatusOr, if the expression, a
// Status, is an error.
//
//   LS_RETURN_IF_ERROR(writer.Commit());
#define LS_RETURN_IF_ERROR(...)                                                    \
  do {                                                                             \
    if (absl::Status ls_status = (__VA_ARGS__); !ls_status.ok()) return ls_status; \
  } while (false)

// Evaluates the expression, a StatusOr; returns its status from the enclosing function if it is an
// error, or else moves its value into `lhs`, which is a declaration or something assignable. A left
// side with a comma outside of quotes and brackets goes into parentheses.
//
//   LS_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
//   LS_ASSIGN_OR_RETURN((std::map<int, int> counts), Count(text));
//
// It makes several statements: the body of an `if` that uses it needs braces.
#define LS_ASSIGN_OR_RETURN(lhs, ...) \
  LS_ASSIGN_OR_RETURN_IMPL_(LS_CONCAT_(ls_status_or_, __LINE__), lhs, (__VA_ARGS__))

#define LS_ASSIGN_OR_RETURN_IMPL_(status_or, lhs, expression) \
  auto status_or = expression;                                \
  if (!status_or.ok()) return std::move(status_or).status();  \
  LS_STRIP_PARENTHESES_(lhs) = *std::move(status_or)

#define LS_CONCAT_(a, b) LS_CONCAT_IMPL_(a, b)
#define LS_CONCAT_IMPL_(a, b) a##b

// `(a, b)` becomes `a, b`, and anything without outer parentheses stays. LS_EAT_ is a call only
// when parentheses follow it; either way its name remains in front, and pasting makes that vanish.
#define LS_STRIP_PARENTHESES_(x) LS_PASTE_VANISH_(LS_EAT_ x)
#define LS_EAT_(...) LS_EAT_ __VA_ARGS__
#define LS_PASTE_VANISH_(...) LS_PASTE_VANISH_IMPL_(__VA_ARGS__)
#define LS_PASTE_VANISH_IMPL_(...) LS_VANISH_##__VA_ARGS__
#define LS_VANISH_LS_EAT_
