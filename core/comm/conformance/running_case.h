#pragma once

#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/comm/conformance/serial_model.h"
#include "core/comm/conformance/test_memory.h"
#include "core/tensor/tensor.h"

namespace lockstep {

std::string ToString(const Case& c);

// Chunks of `total` elements or somewhat more for `size` members. `even` or not; in place, chunks
// begin on the boundary that tensors ask for.
std::vector<int64_t> PartsFor(int64_t total, int size, bool even, bool in_place, DType dtype,
                              uint64_t seed);

// A case that one rank has started in a group of matching size.
class RunningCase {
 public:
  RunningCase(const Case& c, Communicator& comm, const RankUnderTest& rank);

  // Waits and expects what the serial model says, and inputs unchanged where not in place.
  void WaitAndCheck();
  Work& work() { return work_; }

 private:
  Case case_;
  int member_;
  TestMemory& memory_;
  Arithmetic arithmetic_;
  Tensor input_;
  Tensor output_;
  Work work_;
};

}  // namespace lockstep
