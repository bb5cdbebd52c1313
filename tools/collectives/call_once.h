#pragma once

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/comm/communicator.h"
#include "core/comm/work.h"

namespace lockstep {

// Begins one member's call of an operation, by its name in place of its function.
// The arguments are those of Communicator, where the operation has them. A broadcast is of
// `output`. kSend sends `input` to the next member and receives `output` from the one before,
// around the group, as far as they are defined; it alone is two works, of the others the second one
// is nothing. CHECKs that it is none of kRecv, kBarrier and kSplit.
std::array<Work, 2> BeginOnce(Communicator& comm, Operation operation, const Tensor& input,
                              const Tensor& output, ReduceOp reduce_op, int root,
                              absl::string_view label, absl::Span<const int64_t> counts = {});

// The same, and waits for it.
absl::Status CallOnce(Communicator& comm, Operation operation, const Tensor& input,
                      const Tensor& output, ReduceOp reduce_op, int root, absl::string_view label,
                      absl::Span<const int64_t> counts = {});

}  // namespace lockstep
