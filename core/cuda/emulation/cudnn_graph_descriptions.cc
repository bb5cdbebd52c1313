#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/cuda/emulation/cudnn_graph_node.h"

namespace lockstep::emulation {

Operations OperationsOf(const GraphNode& graph) {
  const auto find = [&](cudnnBackendDescriptorType_t type) -> const GraphNode* {
    for (const auto& operation : graph.nodes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
      if (operation->type == type) return operation.get();
    }
    return nullptr;
  };
  return {.gradient = find(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR),
          .identity = find(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)};
}

bool IsVirtual(const GraphNode& tensor) {
  return tensor.values.contains(CUDNN_ATTR_TENSOR_IS_VIRTUAL) &&
         tensor.One<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0;
}

Geometry GeometryOf(const GraphNode& gradient) {
  const auto tensor = [&](cudnnBackendAttributeName_t name) {
    const GraphNode& of = gradient.Of(name);
    const auto dims = of.All<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
    return EmulatedTensor{.type = TypeOf(of.One<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)),
                          .n = dims[0],
                          .c = dims[1],
                          .h = dims[2],
                          .w = dims[3]};
  };
  const GraphNode& convolution = gradient.Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC);
  const auto pads = convolution.All<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  const auto strides = convolution.All<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  const EmulatedTensor dw = tensor(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW);
  return {.x = tensor(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X),
          .y = tensor(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY),
          .w = {.type = dw.type, .k = dw.n, .c = dw.c, .h = dw.h, .w = dw.w},
          .convolution = {.pad_h = static_cast<int>(pads[0]),
                          .pad_w = static_cast<int>(pads[1]),
                          .stride_h = static_cast<int>(strides[0]),
                          .stride_w = static_cast<int>(strides[1])}};
}

namespace {

bool IsDataType(int type) {
  return type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16;
}

cudnnStatus_t JudgeTensor(const GraphNode& tensor) {
  const auto dims = tensor.All<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const auto strides = tensor.All<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  const auto alignment = tensor.One<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  if (!IsDataType(tensor.One<int>(CUDNN_ATTR_TENSOR_DATA_TYPE))) {
    return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, "a type of elements that is not emulated");
  }
  const auto type = TypeOf(tensor.One<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE));
  if (dims.size() != strides.size()) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM, "not a stride for each dimension");
  }
  if (alignment <= 0 || alignment % static_cast<int64_t>(SizeOf(type)) != 0) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM,
                     absl::StrCat("an alignment of ", alignment, " bytes for such elements"));
  }
  const auto is_positive = [](int64_t value) { return value > 0; };
  if (!std::all_of(dims.begin(), dims.end(), is_positive) ||
      !std::all_of(strides.begin(), strides.end(), is_positive)) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM, "a dimension or stride that is not positive");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t JudgeConvolution(const GraphNode& convolution) {
  const auto dims = convolution.One<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
  const auto fits = [&](cudnnBackendAttributeName_t name, int64_t least) {
    const auto values = convolution.All<int64_t>(name);
    return static_cast<int64_t>(values.size()) == dims &&
           std::all_of(values.begin(), values.end(), [&](int64_t value) { return value >= least; });
  };
  if (!fits(CUDNN_ATTR_CONVOLUTION_DILATIONS, 1) ||
      !fits(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1) ||
      !fits(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0) ||
      !fits(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0)) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM,
                     "dilations, strides or paddings that are no numbers for each dimension");
  }
  const bool is_emulated =
      convolution.All<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS) == std::vector<int64_t>{1, 1} &&
      convolution.All<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS) ==
          convolution.All<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS) &&
      convolution.One<int>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CROSS_CORRELATION &&
      convolution.One<int>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) == CUDNN_DATA_FLOAT;
  return is_emulated ? CUDNN_STATUS_SUCCESS
                     : RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, "such a convolution is not emulated");
}

cudnnStatus_t JudgeGradient(const GraphNode& gradient) {
  for (const auto name : {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW}) {
    if (gradient.Of(name).All<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS).size() != 4) {
      return RefuseDnn(CUDNN_STATUS_BAD_PARAM,
                       "tensors without two spatial dimensions for a convolution that has two");
    }
  }
  if (const char* const problem = JudgeExtents(GeometryOf(gradient))) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM, problem);
  }
  if (gradient.One<float>(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA) != 1 ||
      gradient.One<float>(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA) != 0) {
    return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, "factors are not emulated");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t JudgePointwise(const GraphNode& pointwise) {
  const bool is_emulated =
      pointwise.One<int>(CUDNN_ATTR_POINTWISE_MODE) == CUDNN_POINTWISE_IDENTITY &&
      pointwise.One<int>(CUDNN_ATTR_POINTWISE_MATH_PREC) == CUDNN_DATA_FLOAT;
  return is_emulated ? CUDNN_STATUS_SUCCESS
                     : RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, "only the identity is emulated");
}

cudnnStatus_t JudgeIdentity(const GraphNode& identity) {
  if (identity.Of(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)
          .All<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS) !=
      identity.Of(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)
          .All<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS)) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM, "an identity between tensors of two shapes");
  }
  return CUDNN_STATUS_SUCCESS;
}

int64_t UidOf(const GraphNode& tensor) { return tensor.One<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID); }

cudnnStatus_t JudgeGraph(const GraphNode& graph) {
  const auto [gradient, identity] = OperationsOf(graph);
  const size_t operations = graph.nodes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).size();
  if (gradient == nullptr || operations != (identity == nullptr ? 1u : 2u)) {
    return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, "such a graph is not emulated");
  }
  const GraphNode& x = gradient->Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X);
  const GraphNode& dy = gradient->Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY);
  const GraphNode& dw = gradient->Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW);
  std::set<int64_t> uids = {UidOf(x), UidOf(dy), UidOf(dw)};
  bool has_unknown = IsVirtual(x) || IsVirtual(dy);
  if (identity == nullptr) {
    has_unknown = has_unknown || IsVirtual(dw);
  } else {
    const GraphNode& result = identity->Of(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    uids.insert(UidOf(result));
    has_unknown = has_unknown || IsVirtual(result) ||
                  UidOf(identity->Of(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)) != UidOf(dw);
  }
  if (uids.size() != operations + 2) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM, "several tensors of one number");
  }
  if (has_unknown) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM, "a tensor that no operation, or no one else, has");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t JudgePack(const GraphNode& pack) {
  const auto uids = pack.All<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.All<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  if (uids.size() != pointers.size()) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM, "not an address for each tensor");
  }
  if (std::set(uids.begin(), uids.end()).size() != uids.size()) {
    return RefuseDnn(CUDNN_STATUS_BAD_PARAM, "several addresses of one tensor");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t JudgeHeuristics(const GraphNode& heuristics) {
  const auto mode = heuristics.One<int>(CUDNN_ATTR_ENGINEHEUR_MODE);
  if (mode == CUDNN_HEUR_MODE_A || mode == CUDNN_HEUR_MODE_FALLBACK) return CUDNN_STATUS_SUCCESS;
  return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, "heuristics of a mode that is not emulated");
}

cudnnStatus_t JudgePlan(const GraphNode& plan) {
  const GraphNode& configuration = plan.Of(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  // Not a mistake of the caller's, who is to try the next proposal.
  return configuration.Of(CUDNN_ATTR_ENGINECFG_ENGINE).engine == Engine::kUnplannable
             ? CUDNN_STATUS_NOT_SUPPORTED
             : CUDNN_STATUS_SUCCESS;
}

}  // namespace

cudnnStatus_t Judge(const GraphNode& node) {
  switch (node.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return JudgeTensor(node);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      return JudgeConvolution(node);
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
      return JudgePointwise(node);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return JudgeGradient(node);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return JudgeIdentity(node);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      return JudgeGraph(node);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      return JudgeHeuristics(node);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return JudgePlan(node);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      return JudgePack(node);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
      return RefuseDnn(CUDNN_STATUS_NOT_SUPPORTED, "engines come from heuristics alone");
  }
  return CUDNN_STATUS_BAD_PARAM;
}

}  // namespace lockstep::emulation
