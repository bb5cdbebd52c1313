// What a timed call reads and writes, and whether it came out right.

#pragma once

#include "absl/status/status.h"
#include "core/tensor/allocator.h"
#include "core/tensor/tensor.h"
#include "tools/bench/timed_call.h"

namespace lockstep {

// A rank's tensors in a call, undefined where the rank has none; or the rank's memory, from which
// all its calls take theirs.
struct CallTensors {
  Tensor input = {};
  Tensor output = {};
};

// Memory for calls with payloads of up to `elements` elements. Throws StatusException where there
// is none.
CallTensors MakeRankMemory(Allocator& allocator, DType dtype, int64_t elements);

CallTensors TensorsOf(const TimedCall& call, int rank, const CallTensors& memory);

// Writes known values, small whole numbers that differ by rank and element, into the rank's input,
// and others into an output that lies elsewhere.
void FillTensors(const TimedCall& call, int rank, const CallTensors& tensors);

// Whether the rank's output, after one call of ranks that all filled theirs, holds what it must in
// every element; an error names the first that does not.
absl::Status CheckOutput(const TimedCall& call, int rank, const CallTensors& tensors);

}  // namespace lockstep
