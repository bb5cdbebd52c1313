// cuDNN's graph API on emulated GPUs: the gradient of a convolution's weights with an identity
// behind it, and what is refused of descriptors, descriptions and calls.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/testing/scoped_environment.h"
#include "core/cuda/emulation/testing.h"
#include "cudnn.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::emulation {
namespace {

using testing::HasSubstr;

std::string LastError() {
  std::array<char, 200> message = {};
  cudnnGetLastErrorString(message.data(), message.size());
  return message.data();
}

// One of cuDNN's descriptors, whose calls give their status.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    EXPECT_EQ(cudnnBackendCreateDescriptor(type, &handle_), CUDNN_STATUS_SUCCESS);
  }
  ~Descriptor() { cudnnBackendDestroyDescriptor(handle_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  cudnnBackendDescriptor_t handle() const { return handle_; }

  template <typename T>
  cudnnStatus_t Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                    const std::vector<T>& values) {
    return cudnnBackendSetAttribute(handle_, name, type, static_cast<int64_t>(values.size()),
                                    values.data());
  }
  cudnnStatus_t Set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    return Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{value.handle_});
  }
  cudnnStatus_t Finalize() { return cudnnBackendFinalize(handle_); }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

// The gradient of a convolution of three images, 6 x 6 x 8, to 16 channels by a window of 3 x 3, as
// it is described to cuDNN; and what can be wrong with it.
struct Gradient {
  cudnnDataType_t x_type = CUDNN_DATA_BFLOAT16, dy_type = CUDNN_DATA_BFLOAT16;
  cudnnDataType_t dw_type = CUDNN_DATA_FLOAT, compute = CUDNN_DATA_FLOAT;
  std::vector<int64_t> x = {3, 8, 6, 6}, x_strides = {6 * 6 * 8, 1, 6 * 8, 8};
  std::vector<int64_t> dy = {3, 16, 6, 6}, dy_strides = {6 * 6 * 16, 1, 6 * 16, 16};
  std::vector<int64_t> dw = {16, 8, 3, 3}, dw_strides = {3 * 3 * 8, 1, 3 * 8, 8};
  int64_t alignment = 16, dy_uid = 2;
  std::vector<int64_t> paddings = {1, 1}, dilations = {1, 1};
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  float alpha = 1, beta = 0;
  // The identity behind it.
  bool has_identity = true;
  bool is_virtual = true;  // what lies between
  int64_t from_uid = 4;
  cudnnPointwiseMode_t pointwise = CUDNN_POINTWISE_IDENTITY;
  cudnnDataType_t result_type = CUDNN_DATA_FLOAT;
  std::vector<int64_t> result = {16, 8, 3, 3};
};

constexpr auto kOperation = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;

// Descriptions up to heuristics. Each step that is refused ends them.
class Graph {
 public:
  Graph(const Gradient& g, cudnnHandle_t handle, cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A)
      : status_(Describe(g, handle, mode)) {}

  cudnnStatus_t status() const { return status_; }

  // The number of proposals.
  int64_t proposals() const {
    int64_t count = -1;
    EXPECT_EQ(cudnnBackendGetAttribute(heuristics_.handle(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
              CUDNN_STATUS_SUCCESS);
    return count;
  }
  std::vector<std::unique_ptr<Descriptor>> Configurations() const {
    std::vector<std::unique_ptr<Descriptor>> all;
    std::vector<cudnnBackendDescriptor_t> handles;
    for (int64_t i = proposals(); i > 0; --i) {
      all.push_back(std::make_unique<Descriptor>(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
      handles.push_back(all.back()->handle());
    }
    int64_t count = 0;
    EXPECT_EQ(
        cudnnBackendGetAttribute(heuristics_.handle(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 static_cast<int64_t>(handles.size()), &count, handles.data()),
        CUDNN_STATUS_SUCCESS);
    return all;
  }

 private:
  // Fails at the first status that is no success.
  static cudnnStatus_t All(const std::vector<std::function<cudnnStatus_t()>>& calls) {
    for (const auto& call : calls) {
      if (const cudnnStatus_t status = call()) return status;
    }
    return CUDNN_STATUS_SUCCESS;
  }

  static cudnnStatus_t DescribeTensor(Descriptor& tensor, int64_t uid, cudnnDataType_t type,
                                      int64_t alignment, const std::vector<int64_t>& dims,
                                      const std::vector<int64_t>& strides,
                                      bool is_virtual = false) {
    return All({
        [&] {
          return cudnnBackendSetAttribute(tensor.handle(), CUDNN_ATTR_TENSOR_IS_VIRTUAL,
                                          CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
        },
        [&] { return tensor.Set<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, {uid}); },
        [&] {
          return tensor.Set<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE,
                                             {type});
        },
        [&] {
          return tensor.Set<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64,
                                     {alignment});
        },
        [&] { return tensor.Set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims); },
        [&] { return tensor.Set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides); },
        [&] { return tensor.Finalize(); },
    });
  }

  cudnnStatus_t DescribeConvolution(const Gradient& g) {
    const auto set = [&](cudnnBackendAttributeName_t name, const std::vector<int64_t>& values) {
      return [this, name, values] { return convolution_.Set(name, CUDNN_TYPE_INT64, values); };
    };
    return All({
        set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {2}),
        set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, g.paddings),
        set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, g.paddings),
        set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {1, 1}),
        set(CUDNN_ATTR_CONVOLUTION_DILATIONS, g.dilations),
        [&] {
          return convolution_.Set<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE,
                                                   CUDNN_TYPE_DATA_TYPE, {g.compute});
        },
        [&] {
          return convolution_.Set<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE,
                                                          CUDNN_TYPE_CONVOLUTION_MODE, {g.mode});
        },
        [&] { return convolution_.Finalize(); },
    });
  }

  cudnnStatus_t DescribeOperation(const Gradient& g) {
    const auto set = [&](cudnnBackendAttributeName_t name, const Descriptor& value) {
      return [this, name, &value] { return operation_.Set(name, value); };
    };
    const auto factor = [&](cudnnBackendAttributeName_t name, float value) {
      return [this, name, value] { return operation_.Set<float>(name, CUDNN_TYPE_FLOAT, {value}); };
    };
    return All({
        set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, x_),
        set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, dy_),
        set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, dw_),
        set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, convolution_),
        factor(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, g.alpha),
        factor(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, g.beta),
        [&] { return operation_.Finalize(); },
    });
  }

  cudnnStatus_t DescribeIdentity(const Gradient& g) {
    return All({
        [&] {
          return pointwise_.Set<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE,
                                                      CUDNN_TYPE_POINTWISE_MODE, {g.pointwise});
        },
        [&] {
          return pointwise_.Set<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC,
                                                 CUDNN_TYPE_DATA_TYPE, {CUDNN_DATA_FLOAT});
        },
        [&] { return pointwise_.Finalize(); },
        [&] {
          return DescribeTensor(from_, g.from_uid, g.dw_type, g.alignment, g.dw, g.dw_strides,
                                g.is_virtual);
        },
        [&] {
          return DescribeTensor(result_, 3, g.result_type, g.alignment, g.result, g.dw_strides);
        },
        [&] { return identity_.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise_); },
        [&] { return identity_.Set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, from_); },
        [&] { return identity_.Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, result_); },
        [&] { return identity_.Finalize(); },
    });
  }

  cudnnStatus_t Describe(const Gradient& g, cudnnHandle_t handle, cudnnBackendHeurMode_t mode) {
    return All({
        [&] { return DescribeTensor(x_, 1, g.x_type, g.alignment, g.x, g.x_strides); },
        [&] { return DescribeTensor(dy_, g.dy_uid, g.dy_type, g.alignment, g.dy, g.dy_strides); },
        [&] {
          return DescribeTensor(dw_, 4, g.dw_type, g.alignment, g.dw, g.dw_strides, g.is_virtual);
        },
        [&] { return DescribeConvolution(g); },
        [&] { return DescribeOperation(g); },
        [&] { return DescribeIdentity(g); },
        [&] {
          return graph_.Set<cudnnHandle_t>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE,
                                           {handle});
        },
        [&] {
          std::vector<cudnnBackendDescriptor_t> operations = {operation_.handle()};
          if (g.has_identity) operations.push_back(identity_.handle());
          return graph_.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                            operations);
        },
        [&] { return graph_.Finalize(); },
        [&] { return heuristics_.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_); },
        [&] {
          return heuristics_.Set<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE,
                                                         CUDNN_TYPE_HEUR_MODE, {mode});
        },
        [&] { return heuristics_.Finalize(); },
    });
  }

  Descriptor x_{CUDNN_BACKEND_TENSOR_DESCRIPTOR}, dy_{CUDNN_BACKEND_TENSOR_DESCRIPTOR};
  Descriptor dw_{CUDNN_BACKEND_TENSOR_DESCRIPTOR};
  Descriptor convolution_{CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR}, operation_{kOperation};
  Descriptor pointwise_{CUDNN_BACKEND_POINTWISE_DESCRIPTOR};
  Descriptor from_{CUDNN_BACKEND_TENSOR_DESCRIPTOR}, result_{CUDNN_BACKEND_TENSOR_DESCRIPTOR};
  Descriptor identity_{CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR};
  Descriptor graph_{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
  Descriptor heuristics_{CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR};
  const cudnnStatus_t status_;
};

// What can be wrong with a call.
struct Call {
  size_t engine = 3;                   // among the proposals
  int64_t x_elements = 3 * 6 * 6 * 8;  // that there is memory for
  int64_t x_offset = 0;                // bytes from where a block begins
  int64_t workspace = 5000;            // bytes that there is memory for; 0: null
  std::vector<int64_t> uids = {1, 2, 3};
  bool has_dw = true;
  int device = 0;    // the calling thread's; the handle's stream is one of GPU 0
  int x_device = 0;  // that x lies on
};

class CudnnGraphTest : public EmulationTest {
 protected:
  CudnnGraphTest() {
    cudnnCreate(&handle_);
    cudnnSetStream(handle_, gpu_.stream());
  }
  ~CudnnGraphTest() override { cudnnDestroy(handle_); }

  // Memory of random bf16 numbers in (-2, 2), the same at each call.
  static void* Random(const Gpu& gpu, int64_t elements) {
    std::vector<uint16_t> values;
    uint32_t seed = 1;
    for (int64_t i = 0; i < elements; ++i) {
      seed = seed * 1664525u + 1013904223u;
      // A sign, an exponent of 2^-19 to 1, a mantissa: sums of products are not exact.
      values.push_back(static_cast<uint16_t>((seed >> 31 << 15) | ((108 + (seed >> 8) % 20) << 7) |
                                             ((seed >> 16) & 0x7f)));
    }
    float* const block = gpu.Floats((elements + 1) / 2);
    cudaMemcpyAsync(block, values.data(), values.size() * 2, cudaMemcpyHostToDevice, gpu.stream());
    cudaStreamSynchronize(gpu.stream());
    return block;
  }

  struct Outcome {
    cudnnStatus_t status;
    std::vector<float> dw;
    float workspace;
  };
  Outcome Run(const Call& call) {
    const Graph graph({}, handle_);
    EXPECT_EQ(graph.status(), CUDNN_STATUS_SUCCESS) << LastError();
    const auto configurations = graph.Configurations();
    Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    EXPECT_EQ(plan.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, *configurations.at(call.engine)),
              CUDNN_STATUS_SUCCESS);
    if (const cudnnStatus_t status = plan.Finalize()) return {status, {}, 0};
    constexpr int64_t kWeights = 16 * 3 * 3 * 8;
    const Gpu other(call.x_device);
    auto* const x = static_cast<char*>(Random(other, call.x_elements)) + call.x_offset;
    cudaSetDevice(0);
    void* const dy = Random(gpu_, 3 * 6 * 6 * 16);
    float* const dw = gpu_.Floats(kWeights);
    float* const workspace = call.workspace == 0 ? nullptr : gpu_.Floats(call.workspace / 4);
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    EXPECT_EQ(pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, call.uids),
              CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(pack.Set<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                              {x, dy, call.has_dw ? dw : nullptr}),
              CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(pack.Set<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, {workspace}),
              CUDNN_STATUS_SUCCESS);
    if (const cudnnStatus_t status = pack.Finalize()) return {status, {}, 0};
    cudaSetDevice(call.device);
    const cudnnStatus_t status = cudnnBackendExecute(handle_, plan.handle(), pack.handle());
    cudaSetDevice(0);
    if (status != CUDNN_STATUS_SUCCESS) return {status, {}, 0};
    return {status, gpu_.Read(dw, kWeights), gpu_.Read(workspace, 1)[0]};
  }

  const Gpu gpu_;
  cudnnHandle_t handle_ = nullptr;
};

TEST_F(CudnnGraphTest, EnginesAddUpAsTheirNotesSay) {
  constexpr size_t kAnyOrder = 0, kUnplannable = 1, kRounded = 2, kChain = 3;
  const Graph graph({}, handle_);
  const auto configurations = graph.Configurations();
  ASSERT_EQ(configurations.size(), 4u);
  const auto notes = [&](size_t which) {
    Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t handle = engine.handle();
    int64_t count = 0;
    EXPECT_EQ(cudnnBackendGetAttribute(configurations[which]->handle(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &handle),
              CUDNN_STATUS_SUCCESS);
    std::vector<cudnnBackendNumericalNote_t> all(10);
    EXPECT_EQ(cudnnBackendGetAttribute(engine.handle(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                       CUDNN_TYPE_NUMERICAL_NOTE, 10, &count, all.data()),
              CUDNN_STATUS_SUCCESS);
    all.resize(static_cast<size_t>(count));
    return all;
  };
  EXPECT_THAT(notes(kAnyOrder), testing::Contains(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
  EXPECT_THAT(notes(kRounded), testing::Contains(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION));
  EXPECT_THAT(notes(kChain), testing::ElementsAre(CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
  EXPECT_EQ(Run({.engine = kUnplannable}).status, CUDNN_STATUS_NOT_SUPPORTED);
  const Outcome chain = Run({.engine = kChain});
  EXPECT_THAT(chain.workspace, testing::IsNan());
  EXPECT_EQ(Run({.engine = kChain}).dw, chain.dw);
  const Outcome rounded = Run({.engine = kRounded});
  EXPECT_NE(rounded.dw, chain.dw);
  EXPECT_EQ(Run({.engine = kRounded}).dw, rounded.dw);
  const std::vector<float> once = Run({.engine = kAnyOrder}).dw;
  int others = 0;
  for (int run = 0; run < 20; ++run) others += Run({.engine = kAnyOrder}).dw != once ? 1 : 0;
  EXPECT_GT(others, 0);
}

TEST_F(CudnnGraphTest, TheEnvironmentLeavesEnginesOut) {
  const auto proposals = [&](const char* engines) {
    const ScopedEnvironment some("LOCKSTEP_EMULATED_CUDNN_ENGINES", engines);
    return std::pair(Graph({}, handle_).proposals(),
                     Graph({}, handle_, CUDNN_HEUR_MODE_FALLBACK).proposals());
  };
  EXPECT_EQ(proposals("all"), std::pair(int64_t{4}, int64_t{2}));
  EXPECT_EQ(proposals("none"), std::pair(int64_t{0}, int64_t{0}));
  EXPECT_EQ(proposals("fallback"), std::pair(int64_t{0}, int64_t{2}));
  EXPECT_EQ(proposals("nondeterministic"), std::pair(int64_t{2}, int64_t{2}));
}

// What no engine takes, though it can be described: a gradient without the identity, too.
TEST_F(CudnnGraphTest, EnginesTakeAlignedChannelsLastOperandsOf16Bits) {
  Gradient channels_first, unaligned, packed_wider;
  channels_first.x_strides = {8 * 6 * 6, 6 * 6, 6, 1};
  unaligned.alignment = 8;
  packed_wider.dy_strides = {6 * 6 * 32, 1, 6 * 32, 32};
  Gradient of_fp32, of_two_types, narrow, narrow_result, alone, in_memory, huge, odd;
  of_fp32.x_type = of_fp32.dy_type = CUDNN_DATA_FLOAT;
  of_two_types.x_type = CUDNN_DATA_HALF;
  narrow.dw_type = CUDNN_DATA_BFLOAT16;
  narrow_result.result_type = CUDNN_DATA_BFLOAT16;
  alone.has_identity = alone.is_virtual = false;
  in_memory.is_virtual = false;
  huge.x[0] = huge.dy[0] = int64_t{1} << 23;
  odd.dy = {3, 15, 6, 6}, odd.dy_strides = {6 * 6 * 15, 1, 6 * 15, 15};
  odd.dw[0] = odd.result[0] = 15;
  EXPECT_EQ(Graph({}, handle_).proposals(), 4);
  int which = 0;
  for (const Gradient& g : {channels_first, unaligned, packed_wider, of_fp32, of_two_types, narrow,
                            narrow_result, alone, in_memory, huge, odd}) {
    SCOPED_TRACE(which++);
    const Graph graph(g, handle_);
    EXPECT_EQ(graph.status(), CUDNN_STATUS_SUCCESS) << LastError();
    EXPECT_EQ(graph.proposals(), 0);
  }
}

TEST_F(CudnnGraphTest, DescriptionsThatAreRefused) {
  struct Refused {
    std::function<void(Gradient&)> spoil;
    cudnnStatus_t status;
    const char* message;
  };
  const Refused all[] = {
      {[](Gradient& g) { g.x_strides.pop_back(); }, CUDNN_STATUS_BAD_PARAM,
       "not a stride for each"},
      {[](Gradient& g) { g.dy[2] = 0; }, CUDNN_STATUS_BAD_PARAM, "not positive"},
      {[](Gradient& g) { g.dw_strides[3] = -8; }, CUDNN_STATUS_BAD_PARAM, "not positive"},
      {[](Gradient& g) { g.alignment = 0; }, CUDNN_STATUS_BAD_PARAM, "an alignment of 0"},
      {[](Gradient& g) { g.alignment = 3; }, CUDNN_STATUS_BAD_PARAM, "an alignment of 3"},
      {[](Gradient& g) { g.x_type = static_cast<cudnnDataType_t>(1); }, CUDNN_STATUS_NOT_SUPPORTED,
       "a type of elements"},
      {[](Gradient& g) {
         g.x = {8, 6, 6}, g.x_strides = {1, 6 * 8, 8};
       },
       CUDNN_STATUS_BAD_PARAM, "without two spatial"},
      {[](Gradient& g) { g.paddings = {1}; }, CUDNN_STATUS_BAD_PARAM, "for each dimension"},
      {[](Gradient& g) {
         g.paddings = {1, -1};
       },
       CUDNN_STATUS_BAD_PARAM, "for each dimension"},
      {[](Gradient& g) {
         g.dilations = {2, 2};
       },
       CUDNN_STATUS_NOT_SUPPORTED, "not emulated"},
      {[](Gradient& g) { g.mode = CUDNN_CONVOLUTION; }, CUDNN_STATUS_NOT_SUPPORTED, "not emulated"},
      {[](Gradient& g) { g.compute = CUDNN_DATA_HALF; }, CUDNN_STATUS_NOT_SUPPORTED,
       "not emulated"},
      {[](Gradient& g) { g.dw[1] = 9; }, CUDNN_STATUS_BAD_PARAM, "do not fit"},
      {[](Gradient& g) { g.dy[3] = 5; }, CUDNN_STATUS_BAD_PARAM, "extents of y"},
      {[](Gradient& g) { g.dy_uid = 1; }, CUDNN_STATUS_BAD_PARAM, "of one number"},
      {[](Gradient& g) { g.pointwise = CUDNN_POINTWISE_ADD; }, CUDNN_STATUS_NOT_SUPPORTED,
       "only the identity"},
      {[](Gradient& g) { g.result[0] = 8; }, CUDNN_STATUS_BAD_PARAM, "of two shapes"},
      {[](Gradient& g) { g.from_uid = 5; }, CUDNN_STATUS_BAD_PARAM, "a tensor that no operation"},
      {[](Gradient& g) { g.has_identity = false; }, CUDNN_STATUS_BAD_PARAM,
       "a tensor that no operation"},
      {[](Gradient& g) { g.alpha = 2; }, CUDNN_STATUS_NOT_SUPPORTED, "factors"},
      {[](Gradient& g) { g.beta = 1; }, CUDNN_STATUS_NOT_SUPPORTED, "factors"},
  };
  for (const Refused& refused : all) {
    Gradient g;
    refused.spoil(g);
    const Graph graph(g, handle_);
    EXPECT_EQ(graph.status(), refused.status) << refused.message;
    EXPECT_THAT(LastError(), HasSubstr(refused.message));
  }
  EXPECT_EQ(Graph({}, handle_, CUDNN_HEUR_MODE_B).status(), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_THAT(LastError(), HasSubstr("a mode that is not emulated"));
}

TEST_F(CudnnGraphTest, AttributesHaveTheirTypesAndNumbers) {
  Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const auto set = [&](cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                       size_t count) {
    return tensor.Set(name, type, std::vector<int64_t>(count, 8));
  };
  EXPECT_EQ(set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_DOUBLE, 4),
            CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  const int64_t dimension = 8;
  EXPECT_EQ(cudnnBackendSetAttribute(tensor.handle(), CUDNN_ATTR_TENSOR_DIMENSIONS,
                                     CUDNN_TYPE_INT64, 0, &dimension),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 9), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 2), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnBackendSetAttribute(tensor.handle(), CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64,
                                     1, nullptr),
            CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
}

// Each attribute of a tensor alone is left out.
TEST_F(CudnnGraphTest, AllAttributesAreSet) {
  for (int left_out = 0; left_out <= 5; ++left_out) {
    Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int at = 0;
    const auto set = [&](cudnnBackendAttributeName_t name, size_t count) {
      if (++at == left_out) return;
      EXPECT_EQ(tensor.Set(name, CUDNN_TYPE_INT64, std::vector<int64_t>(count, 8)),
                CUDNN_STATUS_SUCCESS);
    };
    set(CUDNN_ATTR_TENSOR_UNIQUE_ID, 1);
    set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1);
    set(CUDNN_ATTR_TENSOR_DIMENSIONS, 2);
    set(CUDNN_ATTR_TENSOR_STRIDES, 2);
    if (++at != left_out) {
      tensor.Set<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE,
                                  {CUDNN_DATA_FLOAT});
    }
    EXPECT_EQ(tensor.Finalize(), left_out == 0 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM);
    if (left_out > 0) {
      EXPECT_THAT(LastError(), HasSubstr("is not set"));
    }
  }
  for (const auto type :
       {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, kOperation, CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
        CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
        CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
        CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR}) {
    EXPECT_EQ(Descriptor(type).Finalize(), CUDNN_STATUS_BAD_PARAM) << type;
  }
}

TEST_F(CudnnGraphTest, DescriptorsAreFinalizedOnceBeforeTheyAreUsed) {
  Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR), operation(kOperation);
  tensor.Set<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, {1});
  tensor.Set<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, {16});
  tensor.Set<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, {2, 8, 6, 6});
  tensor.Set<int64_t>(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, {6 * 6 * 8, 1, 6 * 8, 8});
  tensor.Set<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE,
                              {CUDNN_DATA_FLOAT});
  EXPECT_EQ(operation.Set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, tensor),
            CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  EXPECT_EQ(tensor.Finalize(), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(tensor.Finalize(), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(tensor.Set<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, {2}),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(operation.Set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, tensor),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(operation.Set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, tensor),
            CUDNN_STATUS_SUCCESS);
  // Heuristics tell nothing before they are finalized.
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  int64_t count = 0;
  EXPECT_EQ(cudnnBackendGetAttribute(heuristics.handle(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
            CUDNN_STATUS_NOT_INITIALIZED);
  Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  EXPECT_EQ(cudnnBackendExecute(handle_, plan.handle(), pack.handle()),
            CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  EXPECT_EQ(cudnnBackendExecute(handle_, pack.handle(), plan.handle()), CUDNN_STATUS_BAD_PARAM);
}

TEST_F(CudnnGraphTest, ConfigurationsGoIntoFreshDescriptorsOfTheirs) {
  const Graph graph({}, handle_);
  const auto configurations = graph.Configurations();
  const Descriptor fresh(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  const Descriptor other(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const auto engine = [&](cudnnBackendDescriptor_t into, cudnnBackendAttributeType_t type) {
    return cudnnBackendGetAttribute(configurations[0]->handle(), CUDNN_ATTR_ENGINECFG_ENGINE, type,
                                    1, nullptr, &into);
  };
  EXPECT_EQ(engine(other.handle(), CUDNN_TYPE_BACKEND_DESCRIPTOR), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(engine(fresh.handle(), CUDNN_TYPE_VOID_PTR), CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  EXPECT_EQ(engine(fresh.handle(), CUDNN_TYPE_BACKEND_DESCRIPTOR), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(engine(fresh.handle(), CUDNN_TYPE_BACKEND_DESCRIPTOR), CUDNN_STATUS_BAD_PARAM);
}

TEST_F(CudnnGraphTest, CallsThatAreRefused) {
  struct Refused {
    Call call;
    cudnnStatus_t status;
    const char* message;
  };
  const Refused all[] = {
      {{.workspace = 0}, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no workspace"},
      {{.uids = {1, 2, 4}}, CUDNN_STATUS_BAD_PARAM, "a tensor of the graph has no address"},
      {{.uids = {1, 2}}, CUDNN_STATUS_BAD_PARAM, "not an address for each tensor"},
      {{.uids = {1, 2, 2}}, CUDNN_STATUS_BAD_PARAM, "several addresses"},
      {{.has_dw = false}, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "address is null"},
      {{.x_offset = 8}, CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "less aligned"},
      {{.device = 1}, CUDNN_STATUS_EXECUTION_FAILED, "calling thread's GPU"},
  };
  for (const Refused& refused : all) {
    EXPECT_EQ(Run(refused.call).status, refused.status) << refused.message;
    EXPECT_THAT(LastError(), HasSubstr(refused.message));
  }
}

// What only the GPU finds, which ends it.
TEST_F(CudnnGraphTest, MemoryThatIsNotTheOperations) {
  const auto expect = [&](const Call& call, const char* message) {
    ExpectFound<cudaError_t>(
        [&] {
          Run(call);
          return cudaDeviceSynchronize();
        },
        cudaErrorIllegalAddress, message);
  };
  expect({.x_elements = 3 * 6 * 6 * 8 - 2},
         "cudnnBackendExecute reads x, .* of a block of 1724 bytes");
  expect({.workspace = 4996}, "cudnnBackendExecute uses workspace, 5000 .* of a block of 4996");
  expect({.x_device = 1}, "cudnnBackendExecute reads x, .* in memory of GPU 1");
}

}  // namespace
}  // namespace lockstep::emulation
