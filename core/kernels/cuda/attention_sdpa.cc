#include "core/kernels/cuda/attention_sdpa.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#ifdef LOCKSTEP_CUDNN_FRONTEND

#include <cudnn_frontend.h>

#include <cmath>
#include <exception>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace lockstep::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;

// Numbers of the tensors of a graph, by which a call says where they lie.
enum Uid : int64_t { kQ = 1, kK, kV, kY, kLogSumExp, kDy, kDq, kDk, kDv };

absl::Status StatusOf(fe::error_object error, const char* step) {
  if (error.is_good()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("cuDNN, ", step, ": ", error.get_message()));
}

// Describes one of our tensors as cuDNN wants it, [batch, heads, time, head width] with strides: a
// token's row has `row` elements, and a head is head_width of them.
template <typename Attributes>
void Describe(const AttentionShape& shape, Uid uid, int64_t heads, int64_t row,
              Attributes& tensor) {
  tensor.set_uid(uid)
      .set_dim({shape.batch, heads, shape.time, shape.head_width})
      .set_stride({shape.time * row, shape.head_width, row, 1});
}

template <typename Attributes>
void DescribeSums(const AttentionShape& shape, Attributes& tensor) {
  tensor.set_uid(kLogSumExp)
      .set_data_type(fe::DataType_t::FLOAT)
      .set_dim({shape.batch, shape.heads, shape.time, 1})
      .set_stride({shape.heads * shape.time, shape.time, 1, 1});
}

class Graph {
 public:
  explicit Graph(const AttentionShape& shape) : shape_(shape) {
    graph_.set_io_data_type(shape.dtype == DType::kF16 ? fe::DataType_t::HALF
                                                       : fe::DataType_t::BFLOAT16);
    graph_.set_intermediate_data_type(fe::DataType_t::FLOAT);
    graph_.set_compute_data_type(fe::DataType_t::FLOAT);
    if (shape.pass == AttentionShape::Pass::kForward) {
      AddForward();
    } else {
      AddBackward();
    }
  }

  // Has cuDNN choose kernels: the first of its proposals, in its own order, that can be built.
  absl::Status Build(cudnnHandle_t handle) {
    LS_RETURN_IF_ERROR(StatusOf(graph_.validate(), "validation"));
    LS_RETURN_IF_ERROR(StatusOf(graph_.build_operation_graph(handle), "operation graph"));
    LS_RETURN_IF_ERROR(StatusOf(graph_.create_execution_plans({fe::HeurMode_t::A}), "heuristics"));
    graph_.deselect_numeric_notes({fe::NumericalNote_t::NONDETERMINISTIC});
    LS_RETURN_IF_ERROR(StatusOf(graph_.check_support(), "support"));
    LS_RETURN_IF_ERROR(
        StatusOf(graph_.build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE), "plan"));
    return StatusOf(graph_.get_workspace_size(workspace_bytes_), "workspace");
  }

  int64_t workspace_bytes() const { return workspace_bytes_; }

  absl::Status Execute(cudnnHandle_t handle, std::unordered_map<int64_t, void*> addresses,
                       void* workspace) {
    fe::error_object error = graph_.execute(handle, addresses, workspace);
    if (error.is_good()) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("cuDNN's attention: ", error.get_message()));
  }

 private:
  using TensorInGraph = std::shared_ptr<Tensor_attributes>;

  TensorInGraph Input(Uid uid, int64_t heads, int64_t row) {
    Tensor_attributes tensor;
    Describe(shape_, uid, heads, row, tensor);
    return graph_.tensor(tensor);
  }
  void Output(Uid uid, int64_t heads, int64_t row, const TensorInGraph& tensor) {
    tensor->set_output(true);
    Describe(shape_, uid, heads, row, *tensor);
  }

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(shape_.head_width)); }
  int64_t y_width() const { return shape_.heads * shape_.head_width; }

  void AddForward() {
    const int64_t row = shape_.packed_width();
    const TensorInGraph q = Input(kQ, shape_.heads, row);
    const TensorInGraph k = Input(kK, shape_.key_heads, row);
    const TensorInGraph v = Input(kV, shape_.key_heads, row);
    auto [y, sums] = graph_.sdpa(q, k, v,
                                 fe::graph::SDPA_attributes()
                                     .set_name("forward")
                                     .set_generate_stats(true)
                                     .set_attn_scale(scale())
                                     .set_causal_mask(true));
    Output(kY, shape_.heads, y_width(), y);
    sums->set_output(true);
    DescribeSums(shape_, *sums);
  }

  void AddBackward() {
    const int64_t row = shape_.packed_width();
    const TensorInGraph q = Input(kQ, shape_.heads, row);
    const TensorInGraph k = Input(kK, shape_.key_heads, row);
    const TensorInGraph v = Input(kV, shape_.key_heads, row);
    const TensorInGraph y = Input(kY, shape_.heads, y_width());
    const TensorInGraph dy = Input(kDy, shape_.heads, y_width());
    Tensor_attributes kept;
    DescribeSums(shape_, kept);
    const TensorInGraph sums = graph_.tensor(kept);
    auto [dq, dk, dv] = graph_.sdpa_backward(q, k, v, y, dy, sums,
                                             fe::graph::SDPA_backward_attributes()
                                                 .set_name("backward")
                                                 .set_attn_scale(scale())
                                                 .set_causal_mask(true)
                                                 .set_deterministic_algorithm(true));
    Output(kDq, shape_.heads, row, dq);
    Output(kDk, shape_.key_heads, row, dk);
    Output(kDv, shape_.key_heads, row, dv);
  }

  const AttentionShape shape_;
  fe::graph::Graph graph_;
  int64_t workspace_bytes_ = 0;
};

class CudnnPlan final : public AttentionPlan {
 public:
  CudnnPlan(cudnnHandle_t handle, const AttentionShape& shape)
      : handle_(handle), shape_(shape), graph_(shape) {}

  absl::Status Build() { return graph_.Build(handle_); }

  int64_t workspace_bytes() const override { return graph_.workspace_bytes(); }

  absl::Status Run(const AttentionTensors& tensors, void* workspace) override {
    std::unordered_map<int64_t, void*> addresses = {{kY, tensors.y.raw()},
                                                    {kLogSumExp, tensors.log_sum_exp.raw()}};
    AddPacked(tensors.qkv, kQ, kK, kV, addresses);
    if (shape_.pass == AttentionShape::Pass::kBackward) {
      addresses[kDy] = tensors.dy.raw();
      AddPacked(tensors.dqkv, kDq, kDk, kDv, addresses);
    }
    return graph_.Execute(handle_, std::move(addresses), workspace);
  }

 private:
  // Where queries, keys and values begin in the rows of `packed`.
  void AddPacked(const Tensor& packed, Uid q, Uid k, Uid v,
                 std::unordered_map<int64_t, void*>& addresses) const {
    const int64_t head_bytes = shape_.head_width * SizeOf(shape_.dtype);
    addresses[q] = packed.raw();
    addresses[k] = packed.raw() + shape_.heads * head_bytes;
    addresses[v] = packed.raw() + (shape_.heads + shape_.key_heads) * head_bytes;
  }

  const cudnnHandle_t handle_;
  const AttentionShape shape_;
  Graph graph_;
};

class CudnnLibrary final : public AttentionLibrary {
 public:
  explicit CudnnLibrary(std::function<cudnnHandle_t()> handle) : handle_(std::move(handle)) {}

  absl::StatusOr<std::unique_ptr<AttentionPlan>> Plan(const AttentionShape& shape) override {
    try {  // the frontend's older parts throw
      auto plan = std::make_unique<CudnnPlan>(handle_(), shape);
      LS_RETURN_IF_ERROR(plan->Build());
      return plan;
    } catch (const StatusException& error) {
      return error.status();
    } catch (const std::exception& error) {
      return absl::UnimplementedError(absl::StrCat("cuDNN: ", error.what()));
    }
  }

 private:
  const std::function<cudnnHandle_t()> handle_;
};

}  // namespace

bool IsBuiltWithCudnnFrontend() { return true; }

std::unique_ptr<AttentionLibrary> CudnnAttention(std::function<cudnnHandle_t()> handle) {
  return std::make_unique<CudnnLibrary>(std::move(handle));
}

}  // namespace lockstep::cuda

#else

namespace lockstep::cuda {
namespace {

class NoLibrary final : public AttentionLibrary {
 public:
  absl::StatusOr<std::unique_ptr<AttentionPlan>> Plan(const AttentionShape& /*shape*/) override {
    return absl::UnimplementedError(
        "built without the headers of cuDNN's frontend; see third_party/cudnn_frontend");
  }
};

}  // namespace

bool IsBuiltWithCudnnFrontend() { return false; }

std::unique_ptr<AttentionLibrary> CudnnAttention(std::function<cudnnHandle_t()> /*handle*/) {
  return std::make_unique<NoLibrary>();
}

}  // namespace lockstep::cuda

#endif
