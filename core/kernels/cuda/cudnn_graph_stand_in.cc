// A stand-in for what cuDNN's frontend calls of cuDNN's backend and of CUDA's runtime, for tests on
// the CPU: built with NVIDIA's headers, linked instead of the libraries. It evaluates the graph of
// operations that the frontend has described, node by node, in tensors of the host's memory, as
// NVIDIA's "cuDNN Backend API" and "Graph API" say: products, pointwise operations, reductions and
// reshapes. What cuDNN would refuse of a graph, or choose for it, is not known here.
//
// The environment says which GPU there seems to be:
//
//   LOCKSTEP_STAND_IN_CAPABILITY=80   compute capability; 90 where it is not set
//   LOCKSTEP_STAND_IN_NOTE=1          each engine has cuDNN's note that its bits differ
//   LOCKSTEP_STAND_IN_ENGINES=0       no engine can compute the graph

#include <cudnn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/half.h"
#include "cuda_runtime_api.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr int64_t kWorkspaceBytes = 1000;  // no power of two
constexpr int64_t kEngines = 6;  // the frontend asks for number 5 on GPUs of capability 10

int FromEnvironment(const char* name, int otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

size_t SizeOfType(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
      return 8;
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
      return 1;
    default:
      return 4;  // enumerations, floats and 32-bit integers
  }
}

// What a descriptor describes. Descriptors that it was set from may be destroyed before it.
struct Node {
  cudnnBackendDescriptorType_t type = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
  std::map<cudnnBackendAttributeName_t, std::string> values;  // the bytes
  std::map<cudnnBackendAttributeName_t, std::vector<std::shared_ptr<Node>>> nodes;
  bool is_final = false;

  template <typename T>
  std::vector<T> All(cudnnBackendAttributeName_t name) const {
    const auto found = values.find(name);
    if (found == values.end()) return {};
    std::vector<T> all(found->second.size() / sizeof(T));
    std::memcpy(all.data(), found->second.data(), all.size() * sizeof(T));
    return all;
  }
  template <typename T>
  T One(cudnnBackendAttributeName_t name, T otherwise) const {
    const auto found = values.find(name);
    if (found == values.end()) return otherwise;
    CHECK_EQ(found->second.size(), sizeof(T));
    std::memcpy(&otherwise, found->second.data(), sizeof(T));
    return otherwise;
  }
  // Null: not set.
  const Node* Of(cudnnBackendAttributeName_t name) const {
    const auto found = nodes.find(name);
    return found == nodes.end() || found->second.empty() ? nullptr : found->second.front().get();
  }
};

struct Descriptor {
  std::shared_ptr<Node> node = std::make_shared<Node>();
};

Descriptor& Known(cudnnBackendDescriptor_t descriptor) {
  return *static_cast<Descriptor*>(descriptor);
}

using Coordinates = std::vector<int64_t>;

// Calls with all coordinates below `dims`, in row-major order.
void ForAll(const Coordinates& dims, const std::function<void(const Coordinates&)>& call) {
  int64_t elements = 1;
  for (const int64_t dim : dims) elements *= dim;
  Coordinates at(dims.size(), 0);
  for (int64_t i = 0; i < elements; ++i) {
    call(at);
    for (size_t d = dims.size(); d-- > 0;) {
      if (++at[d] < dims[d]) break;
      at[d] = 0;
    }
  }
}

int64_t Offset(const Coordinates& at, const Coordinates& strides) {
  int64_t offset = 0;
  for (size_t d = 0; d < at.size(); ++d) offset += at[d] * strides[d];
  return offset;
}

// A tensor of the graph and its elements, which lie where its strides say.
class Elements {
 public:
  explicit Elements(const Node& tensor)
      : dims_(tensor.All<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS)),
        strides_(tensor.All<int64_t>(CUDNN_ATTR_TENSOR_STRIDES)),
        type_(tensor.One(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT)) {
    Coordinates last = dims_;
    for (int64_t& at : last) --at;
    values_.resize(static_cast<size_t>(Offset(last, strides_)) + 1);
  }

  const Coordinates& dims() const { return dims_; }
  cudnnDataType_t type() const { return type_; }

  float At(const Coordinates& at) const {
    return values_[static_cast<size_t>(Offset(at, strides_))];
  }
  // At a place of a tensor of `of` extents: 1 stands for any number, and a divisor for groups.
  float For(const Coordinates& at, const Coordinates& of) const {
    Coordinates here(at.size());
    for (size_t d = 0; d < at.size(); ++d) here[d] = at[d] * dims_[d] / of[d];
    return At(here);
  }
  // Rounds to the tensor's type.
  void Set(const Coordinates& at, float value) {
    if (type_ == CUDNN_DATA_HALF) value = HalfToFloat(FloatToHalf(value));
    if (type_ == CUDNN_DATA_BFLOAT16) value = BFloat16ToFloat(FloatToBFloat16(value));
    values_[static_cast<size_t>(Offset(at, strides_))] = value;
  }
  // The memory of another tensor under these extents and strides.
  void Reinterpret(const Elements& other) {
    ForAll(dims_, [&](const Coordinates& at) {
      Set(at, other.values_[static_cast<size_t>(Offset(at, strides_))]);
    });
  }

  void Load(const void* memory) {
    ForAll(dims_, [&](const Coordinates& at) {
      const int64_t i = Offset(at, strides_);
      Set(at, type_ == CUDNN_DATA_FLOAT ? static_cast<const float*>(memory)[i]
              : type_ == CUDNN_DATA_HALF
                  ? HalfToFloat(static_cast<const uint16_t*>(memory)[i])
                  : BFloat16ToFloat(static_cast<const uint16_t*>(memory)[i]));
    });
  }
  void Store(void* memory) const {
    ForAll(dims_, [&](const Coordinates& at) {
      const int64_t i = Offset(at, strides_);
      if (type_ == CUDNN_DATA_FLOAT) {
        static_cast<float*>(memory)[i] = At(at);
      } else {
        static_cast<uint16_t*>(memory)[i] =
            type_ == CUDNN_DATA_HALF ? FloatToHalf(At(at)) : FloatToBFloat16(At(at));
      }
    });
  }

 private:
  const Coordinates dims_, strides_;
  const cudnnDataType_t type_;
  std::vector<float> values_;
};

int64_t UidOf(const Node& tensor) { return tensor.One<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, -1); }

// Inputs and the output of an operation.
struct Operands {
  std::vector<const Node*> inputs;
  const Node* output = nullptr;
};

Operands OperandsOf(const Node& operation) {
  const auto given = [&](std::vector<cudnnBackendAttributeName_t> names) {
    std::vector<const Node*> inputs;
    for (const auto name : names) {
      if (operation.Of(name) != nullptr) inputs.push_back(operation.Of(name));
    }
    return inputs;
  };
  switch (operation.type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return {given({CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC}),
              operation.Of(CUDNN_ATTR_OPERATION_MATMUL_CDESC)};
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return {given({CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                     CUDNN_ATTR_OPERATION_POINTWISE_TDESC}),
              operation.Of(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)};
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return {given({CUDNN_ATTR_OPERATION_REDUCTION_XDESC}),
              operation.Of(CUDNN_ATTR_OPERATION_REDUCTION_YDESC)};
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      return {given({CUDNN_ATTR_OPERATION_RESHAPE_XDESC}),
              operation.Of(CUDNN_ATTR_OPERATION_RESHAPE_YDESC)};
    default:
      return {};
  }
}

void Multiply(const Elements& a, const Elements& b, Elements& c) {
  const int64_t inner = a.dims()[3];
  CHECK_EQ(inner, b.dims()[2]);
  ForAll(c.dims(), [&](const Coordinates& at) {
    float sum = 0;
    for (int64_t k = 0; k < inner; ++k) {
      const Coordinates& of = c.dims();
      const auto head = [&](const Elements& x) { return at[1] * x.dims()[1] / of[1]; };
      sum += a.At({at[0], head(a), at[2], k}) * b.At({at[0], head(b), k, at[3]});
    }
    c.Set(at, sum);
  });
}

// False: not emulated.
bool Pointwise(const Node& operation, const std::vector<const Elements*>& in, Elements& y) {
  const Node& how = *operation.Of(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  const auto mode = how.One(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_ADD);
  const auto axis = static_cast<size_t>(how.One<int64_t>(CUDNN_ATTR_POINTWISE_AXIS, 0));
  bool known = true;
  ForAll(y.dims(), [&](const Coordinates& at) {
    const auto x = [&](size_t i) { return in.at(i)->For(at, y.dims()); };
    float value = 0;
    switch (mode) {
      case CUDNN_POINTWISE_ADD:
        value = x(0) + x(1);
        break;
      case CUDNN_POINTWISE_SUB:
        value = x(0) - x(1);
        break;
      case CUDNN_POINTWISE_MUL:
        value = x(0) * x(1);
        break;
      case CUDNN_POINTWISE_DIV:
        value = x(0) / x(1);
        break;
      case CUDNN_POINTWISE_EXP:
        value = std::exp(x(0));
        break;
      case CUDNN_POINTWISE_LOG:
        value = std::log(x(0));
        break;
      case CUDNN_POINTWISE_IDENTITY:
        value = x(0);
        break;
      case CUDNN_POINTWISE_GEN_INDEX:
        value = static_cast<float>(at.at(axis));
        break;
      case CUDNN_POINTWISE_CMP_GE:
        value = x(0) >= x(1) ? 1 : 0;
        break;
      case CUDNN_POINTWISE_BINARY_SELECT:
        value = x(2) != 0 ? x(0) : x(1);
        break;
      default:
        known = false;
    }
    y.Set(at, value);
  });
  return known;
}

bool Reduce(const Node& operation, const Elements& x, Elements& y) {
  const auto how = operation.Of(CUDNN_ATTR_OPERATION_REDUCTION_DESC)
                       ->One(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_REDUCE_TENSOR_MUL);
  if (how != CUDNN_REDUCE_TENSOR_ADD && how != CUDNN_REDUCE_TENSOR_MAX) return false;
  const bool adds = how == CUDNN_REDUCE_TENSOR_ADD;
  std::map<Coordinates, float> results;
  ForAll(x.dims(), [&](const Coordinates& at) {
    Coordinates to(at.size());
    for (size_t d = 0; d < at.size(); ++d) to[d] = at[d] * y.dims()[d] / x.dims()[d];
    float& result = results.try_emplace(to, adds ? 0 : -INFINITY).first->second;
    result = adds ? result + x.At(at) : std::max(result, x.At(at));
  });
  for (const auto& [at, result] : results) y.Set(at, result);
  return true;
}

// Evaluates a graph whose tensors in memory lie at `addresses`, by their uids.
class Evaluation {
 public:
  Evaluation(const Node& graph, std::map<int64_t, void*> addresses)
      : graph_(graph), addresses_(std::move(addresses)) {}

  cudnnStatus_t Run() {
    const auto& operations = graph_.nodes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS);
    std::set<int64_t> to_come;
    for (const auto& operation : operations) {
      const Operands operands = OperandsOf(*operation);
      if (operands.output == nullptr) return Refuse("an operation that is not known here");
      to_come.insert(UidOf(*operands.output));
    }
    std::vector<const Node*> waiting;
    for (const auto& operation : operations) waiting.push_back(operation.get());
    while (!waiting.empty()) {
      const size_t before = waiting.size();
      for (auto next = waiting.begin(); next != waiting.end();) {
        const Operands operands = OperandsOf(**next);
        const bool is_ready =
            std::none_of(operands.inputs.begin(), operands.inputs.end(),
                         [&](const Node* input) { return to_come.count(UidOf(*input)) > 0; });
        if (!is_ready) {
          ++next;
          continue;
        }
        if (!Compute(**next, operands)) return Refuse("an operation or tensor not known here");
        to_come.erase(UidOf(*operands.output));
        next = waiting.erase(next);
      }
      if (waiting.size() == before) return Refuse("operations that wait for each other");
    }
    return CUDNN_STATUS_SUCCESS;
  }

 private:
  static cudnnStatus_t Refuse(const char* why) {
    LOG(ERROR) << "stand-in for cuDNN: " << why;
    return CUDNN_STATUS_NOT_SUPPORTED;
  }

  // Null: neither computed nor in memory.
  const Elements* Find(const Node& tensor) {
    const int64_t uid = UidOf(tensor);
    if (const auto found = elements_.find(uid); found != elements_.end()) return &found->second;
    const auto address = addresses_.find(uid);
    if (address == addresses_.end()) return nullptr;
    Elements& loaded = elements_.try_emplace(uid, tensor).first->second;
    loaded.Load(address->second);
    return &loaded;
  }

  bool Compute(const Node& operation, const Operands& operands) {
    std::vector<const Elements*> in;
    for (const Node* input : operands.inputs) {
      in.push_back(Find(*input));
      if (in.back() == nullptr) return false;
    }
    Elements out(*operands.output);
    switch (operation.type) {
      case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        Multiply(*in.at(0), *in.at(1), out);
        break;
      case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        if (!Pointwise(operation, in, out)) return false;
        break;
      case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        if (!Reduce(operation, *in.at(0), out)) return false;
        break;
      case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        out.Reinterpret(*in.at(0));
        break;
      default:
        return false;
    }
    const int64_t uid = UidOf(*operands.output);
    if (!operands.output->One(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false)) {
      const auto address = addresses_.find(uid);
      if (address == addresses_.end()) return false;
      out.Store(address->second);
    }
    return elements_.try_emplace(uid, std::move(out)).second;
  }

  const Node& graph_;
  const std::map<int64_t, void*> addresses_;
  std::map<int64_t, Elements> elements_;
};

// An engine configuration for a graph, as heuristics propose it.
void Propose(const std::shared_ptr<Node>& graph, Node& configuration) {
  auto engine = std::make_shared<Node>();
  engine->type = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
  engine->nodes[CUDNN_ATTR_ENGINE_OPERATION_GRAPH] = {graph};
  configuration.type = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
  configuration.nodes[CUDNN_ATTR_ENGINECFG_ENGINE] = {engine};
}

// What products of the graph add up in memory, in fp32: sums whose order blocks of a GPU decide.
bool AddsInMemory(const Node& graph) {
  for (const auto& operation : graph.nodes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    const Node* const output = operation->Of(CUDNN_ATTR_OPERATION_MATMUL_CDESC);
    if (output != nullptr && !output->One(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false) &&
        output->One(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT) == CUDNN_DATA_FLOAT) {
      return true;
    }
  }
  return false;
}

template <typename T>
cudnnStatus_t Return(std::vector<T> values, int64_t wanted, int64_t* count, void* array) {
  if (count != nullptr) *count = static_cast<int64_t>(values.size());
  const auto returned = std::min(static_cast<size_t>(std::max<int64_t>(wanted, 0)), values.size());
  if (array != nullptr) std::copy_n(values.begin(), returned, static_cast<T*>(array));
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace
}  // namespace lockstep

using namespace lockstep;  // NOLINT: what follows is NVIDIA's

size_t cudnnGetVersion() { return CUDNN_VERSION; }
const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS ? "success" : "not supported by the stand-in";
}
void cudnnGetLastErrorString(char* message, size_t size) {
  if (size > 0) *message = 0;
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t, cudaStream_t* stream) {
  *stream = nullptr;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  auto made = std::make_unique<Descriptor>();
  made->node->type = type;
  *descriptor = made.release();
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete &Known(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* array) {
  Node& node = *Known(descriptor).node;
  if (node.is_final) return CUDNN_STATUS_BAD_PARAM;
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    auto& nodes = node.nodes[name];
    nodes.clear();
    for (int64_t i = 0; i < count; ++i) {
      const Descriptor& from = Known(static_cast<const cudnnBackendDescriptor_t*>(array)[i]);
      if (!from.node->is_final) return CUDNN_STATUS_BAD_PARAM;
      nodes.push_back(from.node);
    }
    return CUDNN_STATUS_SUCCESS;
  }
  node.values[name].assign(static_cast<const char*>(array),
                           static_cast<size_t>(count) * SizeOfType(type));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  Node& node = *Known(descriptor).node;
  if (node.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
      FromEnvironment("LOCKSTEP_STAND_IN_ENGINES", 1) == 0) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  node.is_final = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted,
                                       int64_t* count, void* array) {
  const Node& node = *Known(descriptor).node;
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
      if (count != nullptr) *count = 1;
      if (wanted > 0) {
        Descriptor& to = Known(*static_cast<cudnnBackendDescriptor_t*>(array));
        Propose(node.nodes.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).front(), *to.node);
        to.node->is_final = true;
      }
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: {
      const Node& graph = *node.Of(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
      std::vector<cudnnBackendNumericalNote_t> notes;
      if (FromEnvironment("LOCKSTEP_STAND_IN_NOTE", 0) != 0 || AddsInMemory(graph)) {
        notes.push_back(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
      }
      return Return(notes, wanted, count, array);
    }
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
      return Return<cudnnBackendBehaviorNote_t>({}, wanted, count, array);
    case CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED:
      return Return<int32_t>({0}, wanted, count, array);
    case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE:
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      return Return<int64_t>({kWorkspaceBytes}, wanted, count, array);
    case CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT:
      return Return<int64_t>({kEngines}, wanted, count, array);
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
      return Return<int64_t>({0}, wanted, count, array);
    default:
      break;
  }
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const auto found = node.nodes.find(name);
    const auto nodes =
        found == node.nodes.end() ? std::vector<std::shared_ptr<Node>>{} : found->second;
    if (count != nullptr) *count = static_cast<int64_t>(nodes.size());
    for (size_t i = 0; i < nodes.size() && static_cast<int64_t>(i) < wanted; ++i) {
      Known(static_cast<cudnnBackendDescriptor_t*>(array)[i]).node = nodes[i];
    }
    return CUDNN_STATUS_SUCCESS;
  }
  const auto found = node.values.find(name);
  if (found == node.values.end()) return CUDNN_STATUS_NOT_SUPPORTED;
  const std::string& bytes = found->second;
  const size_t size = SizeOfType(type);
  if (count != nullptr) *count = static_cast<int64_t>(bytes.size() / size);
  if (array != nullptr) {
    std::memcpy(array, bytes.data(), std::min(bytes.size(), static_cast<size_t>(wanted) * size));
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  const Node& tensors = *Known(pack).node;
  const auto uids = tensors.All<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = tensors.All<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  std::map<int64_t, void*> addresses;
  for (size_t i = 0; i < uids.size(); ++i) addresses[uids[i]] = pointers.at(i);
  // What a kernel leaves behind in its workspace is nobody's.
  std::memset(tensors.One<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr), 0xff,
              kWorkspaceBytes);
  const Node& engine = *Known(plan)
                            .node->Of(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
                            ->Of(CUDNN_ATTR_ENGINECFG_ENGINE);
  return Evaluation(*engine.Of(CUDNN_ATTR_ENGINE_OPERATION_GRAPH), std::move(addresses)).Run();
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  const int capability = FromEnvironment("LOCKSTEP_STAND_IN_CAPABILITY", 90);
  properties->major = capability / 10;
  properties->minor = capability % 10;
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) { return "an error that the stand-in does not have"; }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
// The frontend times plans with these where it is asked to, which we do not.
cudaError_t cudaDeviceSynchronize() { return cudaErrorNotSupported; }
cudaError_t cudaEventCreate(cudaEvent_t*) { return cudaErrorNotSupported; }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaErrorNotSupported; }
cudaError_t cudaEventElapsedTime(float*, cudaEvent_t, cudaEvent_t) { return cudaErrorNotSupported; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaErrorNotSupported; }
