#include "tools/hostile/judgement.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

std::string Shortened(const std::string& text, size_t most) {
  return text.size() <= most ? text : text.substr(0, most) + "...";
}

}  // namespace

MessageLimit MessageLimitFor(std::string_view input) {
  MessageLimit limit;
  limit.lines += std::count(input.begin(), input.end(), '\n');
  // A key is quoted with its table, its place and what else it may be.
  limit.bytes += 4 * static_cast<int64_t>(input.size()) + 1000 * limit.lines;
  return limit;
}

std::string ProblemOfError(const absl::Status& status, const MessageLimit& limit) {
  if (status.ok()) return "";
  const std::string message(status.message());
  if (absl::IsInternal(status)) return absl::StrCat("an internal error: ", Shortened(message, 500));
  if (message.empty()) return "an error without a message";
  const auto lines = 1 + std::count(message.begin(), message.end(), '\n');
  if (lines <= limit.lines && static_cast<int64_t>(message.size()) <= limit.bytes) return "";
  return absl::StrCat("a message of ", lines, " lines and ", message.size(),
                      " bytes: ", Shortened(message, 500));
}

}  // namespace lockstep
