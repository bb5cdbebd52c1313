#include "core/kernels/cuda/attention_plans.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/tensor/dtype.h"
#include "core/tensor/memory.h"
#include "glog/logging.h"

namespace lockstep::cuda {
namespace {

// Heads lie in a row on multiples of these: kernels load vectors. Tensors do anyway (kAlignment).
constexpr int64_t kVectorBytes = 16;

AttentionShape ShapeOf(AttentionShape::Pass pass, const Attention& attention, const Tensor& qkv) {
  return {.pass = pass,
          .dtype = qkv.dtype(),
          .batch = qkv.shape()[0],
          .time = qkv.shape()[1],
          .heads = attention.heads,
          .key_heads = attention.heads_of_keys(),
          .head_width = attention.head_width};
}

std::string Described(const AttentionShape& shape) {
  return absl::StrCat(shape.pass == AttentionShape::Pass::kForward ? "forward" : "backward", " of ",
                      shape.batch, " samples of ", shape.time, " tokens, ", shape.heads,
                      " heads of ", shape.head_width, " elements in ", Name(shape.dtype), ", ",
                      shape.key_heads, " of keys");
}

}  // namespace

std::string OwnKernelsOnly(const Attention& attention, const Tensor& qkv) {
  if (qkv.dtype() != DType::kF16 && qkv.dtype() != DType::kBF16) {
    return absl::StrCat("of ", Name(qkv.dtype()));
  }
  // The library draws other random numbers than those of logical places.
  if (attention.dropout.probability > 0) return "with dropout";
  if (attention.documents.first != nullptr) return "within documents";
  // What divides the heads must not change the bits, and a library promises them for a shape alone.
  if (attention.heads != attention.total_heads) return "of heads that ranks divide";
  if (attention.head_width * SizeOf(qkv.dtype()) % kVectorBytes != 0) {
    return absl::StrCat("of heads of ", attention.head_width, " elements");
  }
  if (qkv.elements() > std::numeric_limits<int32_t>::max()) {
    return "over 2^31 elements or more";
  }
  return "";
}

AttentionPlans::AttentionPlans(Allocator& allocator, std::unique_ptr<AttentionLibrary> library)
    : allocator_(allocator), library_(std::move(library)) {}

bool AttentionPlans::Forward(const Attention& attention, const AttentionTensors& tensors) {
  return Run(AttentionShape::Pass::kForward, attention, tensors);
}

bool AttentionPlans::Backward(const Attention& attention, const AttentionTensors& tensors) {
  return Run(AttentionShape::Pass::kBackward, attention, tensors);
}

bool AttentionPlans::Run(AttentionShape::Pass pass, const Attention& attention,
                         const AttentionTensors& tensors) {
  if (library_ == nullptr) return false;
  if (const std::string reason = OwnKernelsOnly(attention, tensors.qkv); !reason.empty()) {
    // Every run in fp32 has this reason: who wants to know asks for it.
    if (VLOG_IS_ON(1))
      LogOnce(absl::StrCat("attention ", reason, " is computed by our own kernels"));
    return false;
  }
  AttentionPlan* const plan = PlanOf(ShapeOf(pass, attention, tensors.qkv));
  if (plan == nullptr) return false;
  const Tensor workspace =
      Tensor::Empty(allocator_, {plan->workspace_bytes()}, DType::kU8, MemoryClass::kWorkspace);
  if (const absl::Status run = plan->Run(tensors, workspace.raw()); !run.ok()) {
    constexpr char kWayOut[] =
        "; precision.cudnn_attention = false has our own kernels compute attention";
    throw StatusException(absl::Status(run.code(), absl::StrCat(run.message(), kWayOut)));
  }
  return true;
}

AttentionPlan* AttentionPlans::PlanOf(const AttentionShape& shape) {
  const auto [kept, is_new] = plans_.try_emplace(shape);
  if (is_new) {
    absl::StatusOr<std::unique_ptr<AttentionPlan>> plan = library_->Plan(shape);
    if (plan.ok() && (*plan)->workspace_bytes() > kMostWorkspaceBytes) {
      plan = absl::ResourceExhaustedError(
          absl::StrCat("the library's would take ", (*plan)->workspace_bytes() >> 20,
                       " MiB of workspace, and may take ", kMostWorkspaceBytes >> 20));
    }
    if (plan.ok()) {
      kept->second = *std::move(plan);
    } else {
      LogOnce(absl::StrCat("attention is computed by our own kernels, ", Described(shape), ": ",
                           std::string(plan.status().message())));
    }
  }
  return kept->second.get();
}

void AttentionPlans::LogOnce(const std::string& reason) {
  if (logged_.insert(reason).second) LOG(WARNING) << reason;
}

}  // namespace lockstep::cuda
