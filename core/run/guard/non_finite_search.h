#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/comm/communicator.h"
#include "core/kernels/kernels.h"
#include "core/nn/probe.h"
#include "core/run/record/pass_order.h"

namespace lockstep {

// While a step is repeated: where, on any rank, an output of a block or layer is infinite or NaN
// first. Micro-batches count in their order in the global batch, and blocks in the model's, even
// where a schedule runs them otherwise. A gradient is named where all outputs are finite.
class NonFiniteSearch final : public PassProbe {
 public:
  // `blocks`: the names of the model's, in their order. They and the kernels outlive the search.
  NonFiniteSearch(const std::vector<std::string>& blocks, Kernels& kernels)
      : blocks_(blocks), kernels_(kernels) {}

  void Observe(const ProbedTensor& tensor, const Tensor& value) override;

  // Called by all ranks that have searched. Returns `error` with what came first, on the rank that
  // found it; OK on the others, for which it speaks (AgreeOnFirst). `error` itself on all ranks
  // where no rank has found anything.
  absl::Status Explain(const absl::Status& error, Communicator& ranks) const;

 private:
  struct Finding {
    PassOrder order;
    std::string what;
  };

  bool IsFinite(const ProbedTensor& tensor, const Tensor& value);

  const std::vector<std::string>& blocks_;
  Kernels& kernels_;
  int64_t seen_ = 0;
  std::optional<Finding> first_;  // of this rank; none: all that it has seen is finite
};

}  // namespace lockstep
