#include "core/kernels/cuda/weight_gradient_graph.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/tensor/dtype.h"
#include "core/tensor/memory.h"
#include "glog/logging.h"

namespace lockstep::cuda {
namespace {

// Channels that engines read and write at a time. cuDNN 9.19 has plans for other multiples of 2
// too: for 8 channels in and 4 out every element was wrong (seen on an H200, 2026-11-27).
constexpr int64_t kChannelsAtATime = 8;

// Numbers of the tensors of a graph, by which a call says where they lie.
enum Uid : int64_t { kX = 1, kDy, kSums, kDw };

enum class Kept { kInMemory, kVirtual };

// What engines may rely on, in bytes: a vector. Tensors lie on multiples of more (kAlignment).
constexpr int64_t kVectorBytes = 16;
static_assert(kAlignment % kVectorBytes == 0);

// A channels-last tensor, whose extents cuDNN wants as [n, c, h, w] whatever their order in memory.
GraphDescriptor TensorOf(Uid uid, cudnnDataType_t type, const Images& images,
                         Kept kept = Kept::kInMemory) {
  const int64_t column = images.channels, row = images.width * column, image = images.height * row;
  GraphDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, static_cast<int64_t>(uid));
  tensor.Set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  tensor.Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kVectorBytes);
  tensor.Set(CUDNN_ATTR_TENSOR_DIMENSIONS,
             std::array{images.batch, images.channels, images.height, images.width});
  tensor.Set(CUDNN_ATTR_TENSOR_STRIDES, std::array{image, int64_t{1}, row, column});
  if (kept == Kept::kVirtual) tensor.Set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  tensor.Finalize();
  return tensor;
}

// Weights lie as images do, with an output channel in the place of an image.
Images WeightsOf(const WeightGradientShape& shape) {
  return {.batch = shape.dy.channels,
          .height = shape.kernel,
          .width = shape.kernel,
          .channels = shape.x.channels};
}

GraphDescriptor ConvolutionOf(const WeightGradientShape& shape) {
  const auto both = [](int64_t value) { return std::array{value, value}; };
  GraphDescriptor convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  convolution.Set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2});
  convolution.Set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  convolution.Set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
  convolution.Set(CUDNN_ATTR_CONVOLUTION_DILATIONS, both(1));
  convolution.Set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, both(shape.stride));
  convolution.Set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, both(shape.padding));
  convolution.Set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, both(shape.padding));
  convolution.Finalize();
  return convolution;
}

GraphDescriptor Identity() {
  GraphDescriptor identity(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  identity.Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_IDENTITY);
  identity.Set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  identity.Finalize();
  return identity;
}

GraphDescriptor GraphWith(const WeightGradientOperations& operations, cudnnHandle_t handle) {
  GraphDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  operations.AddTo(graph);
  graph.Finalize();
  return graph;
}

bool IsHarmless(cudnnBackendNumericalNote_t note) {
  return note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE || note == CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP;
}

// The kernels that cuDNN has chosen for a graph.
struct Chosen {
  GraphDescriptor configuration;  // of the engine
  GraphDescriptor plan;
  int64_t workspace_bytes;
};

// The first of the proposals, fastest first, that serves and that cuDNN can plan. Throws what
// became of the proposals where none is.
Chosen Choose(const GraphDescriptor& heuristics) {
  std::vector<GraphDescriptor> configurations =
      heuristics.GetDescriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  int unfit = 0;
  for (GraphDescriptor& configuration : configurations) {
    if (!Serves(configuration)) {
      ++unfit;
      continue;
    }
    GraphDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
    if (!plan.TryFinalize()) continue;
    const int64_t bytes = plan.Get<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE).at(0);
    return {std::move(configuration), std::move(plan), bytes};
  }
  throw StatusException(absl::UnimplementedError(
      absl::StrCat("of ", configurations.size(), " proposals of cuDNN's, ", unfit,
                   " may round more or not repeat their bits, and the others cannot be planned")));
}

// By the fastest engines that cuDNN expects to work; failing these, by any.
Chosen ChooseFor(const GraphDescriptor& graph) {
  std::string reasons;
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    try {
      GraphDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
      heuristics.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
      heuristics.Set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
      heuristics.Finalize();
      return Choose(heuristics);
    } catch (const StatusException& refused) {
      absl::StrAppend(&reasons, reasons.empty() ? "" : "; ", refused.status().message());
    }
  }
  throw StatusException(absl::UnimplementedError(reasons));
}

void CheckChannels(const WeightGradientShape& shape) {
  if (shape.x.channels % kChannelsAtATime == 0 && shape.dy.channels % kChannelsAtATime == 0) return;
  throw StatusException(
      absl::UnimplementedError(absl::StrCat("channels come in multiples of ", kChannelsAtATime)));
}

std::string Described(const WeightGradientShape& shape) {
  return absl::StrCat("x [", shape.x.batch, ", ", shape.x.height, ", ", shape.x.width, ", ",
                      shape.x.channels, "] in ", Name(shape.dtype), ", ", shape.dy.channels,
                      " channels out, window ", shape.kernel, ", stride ", shape.stride);
}

}  // namespace

WeightGradientOperations::WeightGradientOperations(const WeightGradientShape& shape)
    : x_(TensorOf(kX, CudnnType(shape.dtype), shape.x)),
      dy_(TensorOf(kDy, CudnnType(shape.dtype), shape.dy)),
      sums_(TensorOf(kSums, CUDNN_DATA_FLOAT, WeightsOf(shape), Kept::kVirtual)),
      dw_(TensorOf(kDw, CUDNN_DATA_FLOAT, WeightsOf(shape))),
      convolution_(ConvolutionOf(shape)),
      identity_(Identity()),
      gradient_(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR),
      store_(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
  gradient_.Set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, convolution_);
  gradient_.Set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, x_);
  gradient_.Set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, dy_);
  gradient_.Set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, sums_);
  gradient_.Set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 1.0f);
  gradient_.Set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 0.0f);
  gradient_.Finalize();
  store_.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, identity_);
  store_.Set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, sums_);
  store_.Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, dw_);
  store_.Finalize();
}

void WeightGradientOperations::AddTo(GraphDescriptor& graph) const {
  graph.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, {&gradient_, &store_});
}

bool Serves(const GraphDescriptor& configuration) {
  const std::vector<GraphDescriptor> engines =
      configuration.GetDescriptors(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  const auto notes =
      engines.at(0).Get<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
  return std::all_of(notes.begin(), notes.end(), IsHarmless);
}

struct WeightGradientGraphs::Graph {
  Graph(cudnnHandle_t handle, const WeightGradientShape& shape)
      : operations(shape), graph(GraphWith(operations, handle)), chosen(ChooseFor(graph)) {}

  const WeightGradientOperations operations;
  const GraphDescriptor graph;
  const Chosen chosen;
};

WeightGradientGraphs::WeightGradientGraphs(Cudnn& cudnn) : cudnn_(cudnn) {}

WeightGradientGraphs::~WeightGradientGraphs() = default;

const WeightGradientGraphs::Graph* WeightGradientGraphs::GraphOf(const WeightGradientShape& shape) {
  const auto [kept, is_new] = graphs_.try_emplace(shape);
  if (!is_new) return kept->second.get();
  const cudnnHandle_t handle = cudnn_.handle();
  const int64_t start_nanos = NowNanos();
  try {
    CheckChannels(shape);
    kept->second = std::make_unique<const Graph>(handle, shape);
    VLOG(1) << "weight gradient of " << Described(shape) << ": plan made in "
            << (NowNanos() - start_nanos) / 1'000'000 << " ms, workspace of "
            << kept->second->chosen.workspace_bytes << " bytes";
  } catch (const StatusException& refused) {
    LOG_IF(WARNING, !has_told_)
        << "gradients of convolutions' weights are computed from copies in fp32 where cuDNN has no "
           "plan that serves for 16-bit operands and sums in fp32; the first such: "
        << Described(shape) << ": " << refused.status().message();
    has_told_ = true;
  }
  return kept->second.get();
}

bool WeightGradientGraphs::Run(Allocator& allocator, const Window& window, const Tensor& x,
                               const Tensor& dy, const Tensor& dw) {
  CHECK(x.dtype() == dy.dtype() && SizeOf(x.dtype()) == 2 && dw.dtype() == DType::kF32);
  const Graph* const graph = GraphOf({.dtype = x.dtype(),
                                      .x = ImagesOf(x),
                                      .dy = ImagesOf(dy),
                                      .kernel = window.kernel,
                                      .stride = window.stride,
                                      .padding = window.padding});
  if (graph == nullptr) return false;
  const Tensor workspace = Tensor::Empty(allocator, {graph->chosen.workspace_bytes}, DType::kU8,
                                         MemoryClass::kWorkspace);
  GraphDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::array<int64_t, 3>{kX, kDy, kDw});
  pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
           std::array<void*, 3>{x.raw(), dy.raw(), dw.raw()});
  pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, static_cast<void*>(workspace.raw()));
  pack.Finalize();
  LS_CUDNN(cudnnBackendExecute(cudnn_.handle(), graph->chosen.plan.handle(), pack.handle()));
  return true;
}

}  // namespace lockstep::cuda
