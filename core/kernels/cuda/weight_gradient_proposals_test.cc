// What cuDNN itself makes of our description of weight gradients, without a GPU: it is told the
// properties of one, accepts the description, and proposes engines. It builds no plan, for which it
// would want a driver.

#include <cudnn.h>
#include <dlfcn.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/cuda/libraries/libraries.h"
#include "core/kernels/cuda/graph_descriptor.h"
#include "core/kernels/cuda/weight_gradient_graph.h"
#include "gtest/gtest.h"

namespace lockstep::cuda {
namespace {

struct Gpu {
  std::string name;
  int64_t capability, multiprocessors, shared_bytes, cache_bytes;
};

const Gpu kGpus[] = {{"NVIDIA A100-SXM4-40GB", 800, 108, 166912, 41943040},
                     {"NVIDIA H100 80GB HBM3", 900, 132, 232448, 52428800}};

// The properties as cuDNN writes them.
std::string JsonOf(const Gpu& gpu) {
  return absl::StrCat(
      R"({"deviceName":")", gpu.name, R"(","deviceVer":)", gpu.capability,
      R"(,"multiProcessorCount":)", gpu.multiprocessors, R"(,"maxSharedMemoryPerBlockOptin":)",
      gpu.shared_bytes, R"(,"l2CacheSize":)", gpu.cache_bytes,
      R"(,"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"warpSize":32,)"
      R"("regsPerBlock":65536,"maxRegistersPerSM":65536,"maxSharedMemoryPerBlock":49152,)"
      R"("reservedSharedMemoryPerBlock":1024,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,)"
      R"("maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,)"
      R"("totalGlobalMem":42949672960,"smClockRateKHz":1410000,"memClockRateKHz":1215000,)"
      R"("cudaDeviceId":0,"driverVer":13000})");
}

GraphDescriptor Properties(const Gpu& gpu) {
  GraphDescriptor properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  const std::string json = JsonOf(gpu);
  EXPECT_EQ(
      cudnnBackendSetAttribute(properties.handle(), CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                               CUDNN_TYPE_CHAR, static_cast<int64_t>(json.size()), json.data()),
      CUDNN_STATUS_SUCCESS);
  properties.Finalize();
  return properties;
}

struct Case {
  std::string name;
  int64_t batch, height, width, in, out;
  Window window;
};

// ResNet-50's kinds, and small ones.
const Case kCases[] = {
    {"3x3", 32, 56, 56, 64, 64, {3, 1, 1}},
    {"3x3, stride 2", 32, 56, 56, 128, 128, {3, 2, 1}},
    {"1x1", 32, 56, 56, 64, 256, {1, 1, 0}},
    {"1x1, stride 2", 32, 56, 56, 256, 512, {1, 2, 0}},
    {"7x7, stride 2", 1, 23, 19, 8, 16, {7, 2, 3}},
    {"3x3, no padding", 2, 6, 5, 8, 8, {3, 1, 0}},
};

WeightGradientShape ShapeOf(const Case& c, DType dtype) {
  return {.dtype = dtype,
          .x = {c.batch, c.height, c.width, c.in},
          .dy = {c.batch, c.window.Output(c.height), c.window.Output(c.width), c.out},
          .kernel = c.window.kernel,
          .stride = c.window.stride,
          .padding = c.window.padding};
}

// The engines for a graph that heuristics propose in their first mode.
std::vector<GraphDescriptor> Proposed(const GraphDescriptor& graph,
                                      const GraphDescriptor& properties) {
  GraphDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A);
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, properties);
  heuristics.Finalize();
  return heuristics.GetDescriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                   CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
}

class WeightGradientProposalsTest : public testing::Test {
 protected:
  // cuDNN proposes engines that compile their kernels if it can open the driver's library, for
  // which the toolkit's stand-in serves where there is none: it has the library's name and no
  // function that does anything.
  static void SetUpTestSuite() {
    if (dlopen("libcuda.so.1", RTLD_NOW) == nullptr) {
      ASSERT_NE(dlopen("/usr/local/cuda/lib64/stubs/libcuda.so", RTLD_NOW | RTLD_GLOBAL), nullptr)
          << dlerror();
    }
    ASSERT_TRUE(LoadCudnn().ok()) << LoadCudnn();
  }
};

TEST_F(WeightGradientProposalsTest, ThereAreEnginesThatServe) {
  for (const Gpu& gpu : kGpus) {
    const GraphDescriptor properties = Properties(gpu);
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      for (const Case& c : kCases) {
        SCOPED_TRACE(absl::StrCat(gpu.name, ", ", Name(dtype), ", ", c.name));
        const WeightGradientOperations operations(ShapeOf(c, dtype));
        GraphDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
        operations.AddTo(graph);
        graph.Finalize();
        int serving = 0;
        for (const GraphDescriptor& configuration : Proposed(graph, properties)) {
          serving += Serves(configuration) ? 1 : 0;
        }
        EXPECT_GT(serving, 0);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::cuda
