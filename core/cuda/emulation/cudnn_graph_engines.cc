#include <cstdlib>
#include <string>
#include <vector>

#include "core/cuda/emulation/cudnn_graph_node.h"

namespace lockstep::emulation {
namespace {

// Packed in channels-last layout on multiples of 16 bytes, with less than 2^31 elements.
bool IsServed(const GraphNode& tensor) {
  constexpr int64_t kAlignment = 16;
  constexpr double kMostElements = 0x1p31;
  const auto dims = tensor.All<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  double elements = 1;
  for (const int64_t dim : dims) elements *= static_cast<double>(dim);
  if (elements >= kMostElements) return false;
  const int64_t column = dims[1], row = dims[3] * column;
  return tensor.All<int64_t>(CUDNN_ATTR_TENSOR_STRIDES) ==
             std::vector<int64_t>{dims[2] * row, 1, row, column} &&
         tensor.One<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT) % kAlignment == 0;
}

// Whether there are engines: for operands of one 16-bit type, even numbers of channels, and sums in
// fp32 that an identity writes as they are. cuDNN 9.19 has no others that write fp32 for an A100 or
// an H100; those that also write what lies before the identity are not emulated.
bool HasEngines(const GraphNode& graph) {
  const auto [gradient, identity] = OperationsOf(graph);
  if (identity == nullptr) return false;
  const GraphNode& dw = gradient->Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW);
  const GraphNode& result = identity->Of(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  const Geometry g = GeometryOf(*gradient);
  return IsServed(gradient->Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X)) &&
         IsServed(gradient->Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY)) && IsServed(dw) &&
         IsServed(result) && IsVirtual(dw) && g.w.c % 2 == 0 && g.w.k % 2 == 0 &&
         g.x.type == g.y.type && g.x.type != ElementType::kF32 && g.w.type == ElementType::kF32 &&
         result.One<int>(CUDNN_ATTR_TENSOR_DATA_TYPE) == CUDNN_DATA_FLOAT;
}

// Adds up the gradients of images, one after the other from image `first` on, each sum in `sum`.
void AddImages(const Geometry& g, const void* x, const void* dy, int64_t first, ElementType sum,
               void* dw) {
  Geometry one = g;
  one.x.n = one.y.n = 1;
  std::vector<float> part(g.w.bytes() / sizeof(float)), sums(part.size());
  const auto of_image = [](const void* images, const EmulatedTensor& image, int64_t at) {
    return static_cast<const char*>(images) + image.bytes() * static_cast<size_t>(at);
  };
  for (int64_t i = 0; i < g.x.n; ++i) {
    const int64_t image = (first + i) % g.x.n;
    BackwardFilter(one, of_image(x, one.x, image), of_image(dy, one.y, image), 0, part.data());
    for (size_t at = 0; at < sums.size(); ++at) {
      StoreElement(sum, &sums[at], 0, sums[at] + part[at]);
      sums[at] = LoadElement(sum, &sums[at], 0);
    }
  }
  StoreAll(g.w.type, sums, 0, dw);
}

}  // namespace

std::vector<Engine> Proposals(const GraphNode& heuristics) {
  const GraphNode& graph = heuristics.Of(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  if (!HasEngines(graph)) return {};
  const char* const variable = std::getenv("LOCKSTEP_EMULATED_CUDNN_ENGINES");
  const std::string engines = variable == nullptr ? "" : variable;
  const bool is_fallback =
      heuristics.One<int>(CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_FALLBACK;
  if (engines == "none" || (engines == "fallback" && !is_fallback)) return {};
  if (engines == "nondeterministic") return {Engine::kAnyOrder, Engine::kRounded};
  if (is_fallback) return {Engine::kAnyOrder, Engine::kChain};
  return {Engine::kAnyOrder, Engine::kUnplannable, Engine::kRounded, Engine::kChain};
}

std::vector<cudnnBackendNumericalNote_t> NotesOf(Engine engine) {
  switch (engine) {
    case Engine::kAnyOrder:
      return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
    case Engine::kRounded:
      return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION};
    case Engine::kUnplannable:
    case Engine::kChain:
      break;
  }
  return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
}

void Compute(Engine engine, const Geometry& g, const void* x, const void* dy, uint64_t random,
             void* dw) {
  constexpr int64_t kChannelsAtATime = 8;
  if (g.w.c % kChannelsAtATime != 0 || g.w.k % kChannelsAtATime != 0) {
    // There are plans for other even numbers of channels, whose results are wrong: an H200's are.
    return StoreAll(g.w.type, std::vector<float>(g.w.bytes() / sizeof(float)), 0, dw);
  }
  if (engine == Engine::kChain) return BackwardFilter(g, x, dy, 0, dw);
  if (engine == Engine::kRounded) return AddImages(g, x, dy, 0, g.x.type, dw);
  const auto first = static_cast<int64_t>(random % static_cast<uint64_t>(g.x.n));
  AddImages(g, x, dy, first, ElementType::kF32, dw);
}

}  // namespace lockstep::emulation
