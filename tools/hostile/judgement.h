#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace lockstep {

// How long the message of an error may be.
struct MessageLimit {
  int64_t lines = 12;  // several keys may be wrong, a line each
  int64_t bytes = 20'000;
};

// The limit for an input of which each line may be wrong, and which the message quotes.
MessageLimit MessageLimitFor(std::string_view input);

// Returns what is wrong with the error that a reader of hostile input gave, or an empty string
// where nothing is wrong: an OK status, and an error that a user can act on. Wrong are internal
// errors, errors without a message, and messages above the limit.
std::string ProblemOfError(const absl::Status& status, const MessageLimit& limit);

}  // namespace lockstep
