// Attention that a library computes as a whole, where it can: which calls that are, and the plans
// that it has made for them. Nothing here needs a GPU.

#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/kernels/options.h"
#include "core/tensor/allocator.h"
#include "core/tensor/tensor.h"

namespace lockstep::cuda {

// What a plan is made for: causal attention of `heads` heads of queries to `key_heads` heads of
// keys in packed projections (core/kernels/kernels.h), all in one 16-bit dtype. Logits are scaled
// by the inverse square root of the heads' width.
struct AttentionShape {
  enum class Pass { kForward, kBackward };

  Pass pass = Pass::kForward;
  DType dtype = DType::kBF16;
  int64_t batch = 0, time = 0, heads = 0, key_heads = 0, head_width = 0;

  int64_t packed_width() const { return (heads + 2 * key_heads) * head_width; }
  auto operator<=>(const AttentionShape&) const = default;
};

// The tensors of a pass. Forward reads qkv and writes y and log_sum_exp; backward reads these and
// dy, and writes dqkv.
struct AttentionTensors {
  Tensor qkv;          // [batch, time, packed_width]
  Tensor y;            // [batch, time, heads * head_width]
  Tensor log_sum_exp;  // fp32 [batch, heads, time]
  Tensor dy = {};      // as y
  Tensor dqkv = {};    // as qkv
};

// A pass that a library has made ready for one shape.
class AttentionPlan {
 public:
  virtual ~AttentionPlan() = default;
  virtual int64_t workspace_bytes() const = 0;
  // Queues the pass, with bits that do not differ from call to call.
  virtual absl::Status Run(const AttentionTensors& tensors, void* workspace) = 0;
};

class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;
  // Fails where the library is missing, or has no such pass that repeats its bits.
  virtual absl::StatusOr<std::unique_ptr<AttentionPlan>> Plan(const AttentionShape& shape) = 0;
};

// Why only our own kernels compute such a call; empty: a library may.
std::string OwnKernelsOnly(const Attention& attention, const Tensor& qkv);

// The plans of a rank. Calls that no plan serves are left to our own kernels, in either pass alone
// too: both sides keep the same log-sum-exp. Each reason is logged once; why the library was not
// asked at all, with GLOG_v=1 alone.
class AttentionPlans {
 public:
  // Plans that want more are not used. Backward passes that repeat their bits want some two bytes
  // for each logit, which grow with the square of the tokens.
  static constexpr int64_t kMostWorkspaceBytes = int64_t{1} << 30;

  // A null library serves no call, and nothing is logged. The allocator outlives the plans.
  AttentionPlans(Allocator& allocator, std::unique_ptr<AttentionLibrary> library);

  // Queues a pass and returns true; or returns false, and the caller computes. Workspace comes from
  // the allocator. Throws a StatusException where a plan fails that could be made.
  [[nodiscard]] bool Forward(const Attention& attention, const AttentionTensors& tensors);
  [[nodiscard]] bool Backward(const Attention& attention, const AttentionTensors& tensors);

 private:
  bool Run(AttentionShape::Pass pass, const Attention& attention, const AttentionTensors& tensors);
  // Null: the library has none.
  AttentionPlan* PlanOf(const AttentionShape& shape);
  void LogOnce(const std::string& reason);

  Allocator& allocator_;
  const std::unique_ptr<AttentionLibrary> library_;
  std::map<AttentionShape, std::unique_ptr<AttentionPlan>> plans_;  // null: cannot be made
  std::set<std::string> logged_;
};

}  // namespace lockstep::cuda
