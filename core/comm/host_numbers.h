// Collectives of a few numbers that the host has: through host memory, whatever the ranks compute
// on, so that no device is waited for.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/comm/communicator.h"

namespace lockstep {

// `values` of every member = the reduction of all members'. Waits.
absl::Status AllReduceNumbers(Communicator& ranks, absl::Span<float> values, ReduceOp op,
                              absl::string_view label);
absl::Status AllReduceNumbers(Communicator& ranks, absl::Span<double> values, ReduceOp op,
                              absl::string_view label);
absl::Status AllReduceNumbers(Communicator& ranks, absl::Span<int64_t> values, ReduceOp op,
                              absl::string_view label);

// `values` of every member = those of the root. Waits.
absl::Status BroadcastNumbers(Communicator& ranks, absl::Span<double> values, int root,
                              absl::string_view label);
absl::Status BroadcastNumbers(Communicator& ranks, absl::Span<int64_t> values, int root,
                              absl::string_view label);

// Chunk j of each member's `received` = its chunk of member j's `sent`; all chunks are equal.
// Waits.
absl::Status ExchangeNumbers(Communicator& ranks, absl::Span<const int64_t> sent,
                             absl::Span<int64_t> received, absl::string_view label);
// `received` = what all members sent, one behind the other, each as many. Waits.
absl::Status GatherNumbers(Communicator& ranks, absl::Span<const int64_t> sent,
                           absl::Span<int64_t> received, absl::string_view label);

}  // namespace lockstep
