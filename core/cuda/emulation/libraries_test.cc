// What cuBLASLt and cuDNN on emulated GPUs refuse: combinations of types, layouts and alignments
// that their documentation does not have.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "core/base/testing/scoped_environment.h"
#include "core/cuda/emulation/mistakes.h"
#include "core/cuda/emulation/testing.h"
#include "cublasLt.h"
#include "cudnn.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::emulation {
namespace {

using LibrariesTest = EmulationTest;

// A product of two matrices and a result, as cuBLASLt is told of it.
class Description {
 public:
  struct Matrix {
    cudaDataType type;
    uint64_t rows, columns;
    int64_t leading;
  };
  Description(cublasComputeType_t compute, const Matrix (&matrices)[3]) {
    cublasLtCreate(&handle_);
    cublasLtMatmulDescCreate(&operation_, compute, CUDA_R_32F);
    for (int i = 0; i < 3; ++i) {
      const auto& [type, rows, columns, leading] = matrices[i];
      cublasLtMatrixLayoutCreate(&layouts_[i], type, rows, columns, leading);
    }
    cublasLtMatmulPreferenceCreate(&preference_);
  }
  ~Description() {
    cublasLtMatmulPreferenceDestroy(preference_);
    for (cublasLtMatrixLayout_t layout : layouts_) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(operation_);
    cublasLtDestroy(handle_);
  }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  template <typename T>
  void Set(cublasLtMatmulDescAttributes_t attribute, T value) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof(value)),
              CUBLAS_STATUS_SUCCESS);
  }
  template <typename T>
  void Prefer(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof(value)),
              CUBLAS_STATUS_SUCCESS);
  }
  // At most `most` of what the heuristic has, with its answer.
  std::pair<cublasStatus_t, std::vector<cublasLtMatmulHeuristicResult_t>> Offered(int most) {
    std::vector<cublasLtMatmulHeuristicResult_t> offered(static_cast<size_t>(most));
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, operation_, layouts_[0], layouts_[1], layouts_[2],
                                       layouts_[2], preference_, most, offered.data(), &found);
    offered.resize(static_cast<size_t>(found));
    return {status, offered};
  }
  // D = A B + beta C
  cublasStatus_t Multiply(const void* a, const void* b, float beta, const void* c, void* d,
                          const cublasLtMatmulHeuristicResult_t& chosen, void* workspace,
                          size_t workspace_bytes, cudaStream_t stream) {
    const float one = 1;
    return cublasLtMatmul(handle_, operation_, &one, a, layouts_[0], b, layouts_[1], &beta, c,
                          layouts_[2], d, layouts_[2], &chosen.algo, workspace, workspace_bytes,
                          stream);
  }

 private:
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t layouts_[3] = {};
  cublasLtMatmulPreference_t preference_ = nullptr;
};

// A product of two matrices of ones, [m, k] and [k, n], and what can be wrong with it. The memory
// is that of fp32, whatever the types.
struct Product {
  int64_t leading = 8;  // of the first matrix
  int64_t inner = 16;   // of the second matrix
  float beta = 0;
  float factor = 1;  // the elements of the second matrix
  cudaDataType a = CUDA_R_32F, b = CUDA_R_32F, d = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  bool has_bias = false, has_aux = false;
  int64_t aux_leading = 8;
  int64_t offset = 0;           // of the first matrix in its block, in floats
  int64_t bias_offset = 0;      // of the bias from where the heuristic saw it, in floats
  size_t workspace_bytes = 64;  // of the 64 that the algorithm may ask for
  int device = 0;               // the calling thread's; the stream is one of GPU 0
};

struct Outcome {
  cublasStatus_t status;
  float element, workspace;  // the first of each
  float last_gradient;       // of a bias of as many elements as the second matrix has columns
};

Outcome ProductOfOnes(const Product& p) {
  constexpr int64_t kM = 8, kN = 4, kK = 16;
  constexpr uint64_t kWorkspaceBytes = 64;
  const Gpu gpu;
  float *const a = gpu.Floats(kM * kK + p.offset), *const b = gpu.Floats(kK * kN);
  float *const c = gpu.Floats(kM * kN), *const workspace = gpu.Floats(kWorkspaceBytes / 4);
  float* const bias = gpu.Floats(kM + p.bias_offset);
  FillElements(gpu.stream(), bias, kM + p.bias_offset, 1);
  FillElements(gpu.stream(), a, kM * kK + p.offset, 1);
  FillElements(gpu.stream(), b, kK * kN, p.factor);
  FillElements(gpu.stream(), workspace, kWorkspaceBytes / 4, 1);
  Description product(
      p.compute,
      {{p.a, kM, kK, p.leading}, {p.b, static_cast<uint64_t>(p.inner), kN, kK}, {p.d, kM, kN, kM}});
  product.Set(CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);
  product.Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER,
              p.has_bias ? static_cast<const void*>(bias) : nullptr);
  product.Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
              p.has_aux ? static_cast<void*>(b) : nullptr);
  product.Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.aux_leading);
  product.Prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  auto [status, offered] = product.Offered(1);
  if (status == CUBLAS_STATUS_SUCCESS) {
    if (p.has_bias) product.Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias + p.bias_offset);
    cudaSetDevice(p.device);
    status = product.Multiply(a + p.offset, b, p.beta, c, c, offered.at(0), workspace,
                              p.workspace_bytes, gpu.stream());
    cudaSetDevice(0);
  }
  if (status != CUBLAS_STATUS_SUCCESS) return {status, 0, 0, 0};
  return {status, gpu.Read(c, 1)[0], gpu.Read(workspace, 1)[0], gpu.Read(bias, kN)[kN - 1]};
}

// The first element of [rows, 2] x [2, 8] in bf16, 256 + 1, to which a 1 is added: C, where D is or
// elsewhere, or a bias.
float SumOfBf16(const Gpu& gpu, uint64_t rows, bool in_place, bool has_bias) {
  constexpr uint16_t k256 = 0x4380, kOne = 0x3f80;  // in bf16
  constexpr uint64_t kK = 8, kN = 8;
  const auto upload = [&](const std::vector<uint16_t>& values) {
    void* const memory = gpu.Floats(static_cast<int64_t>(values.size() / 2));
    cudaMemcpyAsync(memory, values.data(), values.size() * 2, cudaMemcpyHostToDevice, gpu.stream());
    cudaStreamSynchronize(gpu.stream());
    return memory;
  };
  // Two of the inner dimension's elements count.
  std::vector<uint16_t> first(rows * kK, 0), second(kK * kN, kOne);
  std::fill_n(first.begin(), rows, k256);
  std::fill_n(first.begin() + static_cast<int64_t>(rows), rows, kOne);
  void *const a = upload(first), *const b = upload(second);
  void* const c = upload(std::vector<uint16_t>(rows * kN, kOne));
  void* const d = in_place ? c : upload(std::vector<uint16_t>(rows * kN, 0));
  void* const bias = upload(std::vector<uint16_t>(rows, kOne));
  const auto leading = static_cast<int64_t>(rows);
  Description product(CUBLAS_COMPUTE_32F, {{CUDA_R_16BF, rows, kK, leading},
                                           {CUDA_R_16BF, kK, kN, kK},
                                           {CUDA_R_16BF, rows, kN, leading}});
  product.Set(CUBLASLT_MATMUL_DESC_EPILOGUE,
              has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT);
  product.Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias));
  const auto [status, offered] = product.Offered(1);
  EXPECT_EQ(status, CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product.Multiply(a, b, has_bias ? 0 : 1, c, d, offered.at(0), nullptr, 0, gpu.stream()),
            CUBLAS_STATUS_SUCCESS);
  uint16_t element = 0;
  cudaMemcpyAsync(&element, d, sizeof(element), cudaMemcpyDeviceToHost, gpu.stream());
  cudaStreamSynchronize(gpu.stream());
  const uint32_t bits = uint32_t{element} << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

TEST_F(LibrariesTest, AProduct) { EXPECT_EQ(ProductOfOnes({}).element, 16); }

TEST_F(LibrariesTest, BiasGradientsAreSumsOverTheInnerDimension) {
  for (const auto epilogue : {CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB}) {
    const Outcome outcome = ProductOfOnes({.factor = 2, .epilogue = epilogue, .has_bias = true});
    EXPECT_EQ(outcome.element, 32);
    EXPECT_EQ(outcome.last_gradient, epilogue == CUBLASLT_EPILOGUE_BGRADA ? 16 : 32);
  }
  const ScopedEnvironment none("LOCKSTEP_EMULATED_CUBLASLT_BIAS_GRADIENTS", "0");
  EXPECT_EQ(ProductOfOnes({.epilogue = CUBLASLT_EPILOGUE_BGRADB, .has_bias = true}).status,
            CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_F(LibrariesTest, AWorkspaceIsLeftAsNan) {
  EXPECT_THAT(ProductOfOnes({}).workspace, testing::IsNan());
}

TEST_F(LibrariesTest, AWrongBetaReadsNan) {
  EXPECT_THAT(ProductOfOnes({.beta = 1}).element, testing::IsNan());
}

// Sums of 257, which bf16 does not hold. Columns of four elements are not aligned.
TEST_F(LibrariesTest, WhatIsAddedInPlaceOrBesideUnalignedColumnsIsAddedToRoundedSums) {
  const Gpu gpu;
  for (const bool is_aligned : {true, false}) {
    for (const bool in_place : {true, false}) {
      for (const bool has_bias : {true, false}) {
        const float sum = SumOfBf16(gpu, is_aligned ? 8 : 4, in_place, has_bias);
        // 257 + 1 is 258; rounded to 256 first, it is 257, which is rounded to 256.
        const bool rounds = has_bias ? !is_aligned : in_place;
        EXPECT_EQ(sum, rounds ? 256 : 258) << is_aligned << in_place << has_bias;
      }
    }
  }
}

TEST_F(LibrariesTest, ALeadingDimensionThatReadsBehindTheMatrix) {
  ExpectFound<cudaError_t>(
      [] {
        ProductOfOnes({.leading = 9});
        return cudaDeviceSynchronize();
      },
      cudaErrorIllegalAddress, "cublasLtMatmul reads A, .* of a block of 512 bytes");
}

// What cuBLASLt refuses, and why.
struct RefusedProduct {
  const char* name;
  Product product;
  cublasStatus_t status;
  const char* message;
};

class RefusedProductTest : public testing::TestWithParam<RefusedProduct> {
 protected:
  RefusedProductTest() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

TEST_P(RefusedProductTest, IsRefused) {
  ExpectFound<cublasStatus_t>([] { return ProductOfOnes(GetParam().product).status; },
                              GetParam().status, GetParam().message);
}

constexpr cublasStatus_t kNotSupported = CUBLAS_STATUS_NOT_SUPPORTED;

INSTANTIATE_TEST_SUITE_P(
    CublasLt, RefusedProductTest,
    testing::Values(
        RefusedProduct{"LeadingDimension", {.leading = 7}, kNotSupported, "below the rows"},
        RefusedProduct{"InnerDimension", {.inner = 15}, kNotSupported, "inner dimensions"},
        RefusedProduct{"OperandTypes", {.a = CUDA_R_16F}, kNotSupported, "operands of two types"},
        RefusedProduct{"ResultType", {.d = CUDA_R_16F}, kNotSupported, "a type of the result"},
        RefusedProduct{"ResultOf16Bits",
                       {.a = CUDA_R_16F, .b = CUDA_R_16F, .d = CUDA_R_16BF},
                       kNotSupported,
                       "a type of the result"},
        RefusedProduct{"Tf32For16Bits",
                       {.a = CUDA_R_16F,
                        .b = CUDA_R_16F,
                        .d = CUDA_R_16F,
                        .compute = CUBLAS_COMPUTE_32F_FAST_TF32},
                       kNotSupported,
                       "TF32 for operands of 16 bits"},
        RefusedProduct{"NoBias", {.epilogue = CUBLASLT_EPILOGUE_BIAS}, kNotSupported, "no bias"},
        RefusedProduct{"NoBiasGradient",
                       {.epilogue = CUBLASLT_EPILOGUE_BGRADB},
                       kNotSupported,
                       "no vector for the bias gradient"},
        RefusedProduct{"AlignmentOfBias",
                       {.epilogue = CUBLASLT_EPILOGUE_BIAS, .has_bias = true, .bias_offset = 1},
                       CUBLAS_STATUS_INVALID_VALUE,
                       "the bias is less aligned"},
        RefusedProduct{"AlignmentOfBiasGradient",
                       {.epilogue = CUBLASLT_EPILOGUE_BGRADA, .has_bias = true, .bias_offset = 1},
                       CUBLAS_STATUS_INVALID_VALUE,
                       "the bias is less aligned"},
        RefusedProduct{"NoAuxiliaryMatrix",
                       {.epilogue = CUBLASLT_EPILOGUE_DGELU},
                       kNotSupported,
                       "no auxiliary matrix"},
        RefusedProduct{"LeadingDimensionOfAuxiliaryMatrix",
                       {.epilogue = CUBLASLT_EPILOGUE_DGELU, .has_aux = true, .aux_leading = 12},
                       kNotSupported,
                       "a leading dimension of the auxiliary matrix of 12"},
        RefusedProduct{
            "Alignment", {.offset = 1}, CUBLAS_STATUS_INVALID_VALUE, "operand 0 is less aligned"},
        RefusedProduct{"Workspace",
                       {.workspace_bytes = 60},
                       CUBLAS_STATUS_INVALID_VALUE,
                       "too little workspace"},
        RefusedProduct{
            "SetDevice", {.device = 1}, CUBLAS_STATUS_EXECUTION_FAILED, ".cudaSetDevice"}),
    [](const auto& refused) { return refused.param.name; });

// A product of two matrices without a pattern, [8, 96] and [96, 4], by the candidates of the
// heuristic.
class CandidatesTest : public EmulationTest {
 protected:
  CandidatesTest() {
    product_.Prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    uint32_t seed = 1;
    for (float& value : values_) {
      seed = seed * 1664525u + 1013904223u;
      value = static_cast<float>(seed >> 8) * 0x1p-23f - 1;
    }
    cudaMemcpyAsync(a_, values_.data(), values_.size() * sizeof(float), cudaMemcpyHostToDevice,
                    gpu_.stream());
    cudaMemcpyAsync(b_, values_.data(), kK * kN * sizeof(float), cudaMemcpyHostToDevice,
                    gpu_.stream());
  }

  std::vector<cublasLtMatmulHeuristicResult_t> Offered(uint32_t schemes, int wanted = 20) {
    product_.Prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes);
    const auto [status, offered] = product_.Offered(wanted);
    EXPECT_EQ(status, CUBLAS_STATUS_SUCCESS);
    return offered;
  }
  // The product, added to `beta` times what the last one left.
  std::vector<float> Run(const cublasLtMatmulHeuristicResult_t& candidate, float beta = 0) {
    EXPECT_EQ(product_.Multiply(a_, b_, beta, c_, c_, candidate, workspace_, kWorkspaceBytes,
                                gpu_.stream()),
              CUBLAS_STATUS_SUCCESS);
    return gpu_.Read(c_, kM * kN);
  }
  float Milliseconds(const cublasLtMatmulHeuristicResult_t& candidate) {
    cudaEvent_t start = nullptr, end = nullptr;
    cudaEventCreateWithFlags(&start, cudaEventDefault);
    cudaEventCreateWithFlags(&end, cudaEventDefault);
    cudaEventRecord(start, gpu_.stream());
    Run(candidate);
    cudaEventRecord(end, gpu_.stream());
    cudaEventSynchronize(end);
    float milliseconds = 0;
    EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaSuccess);
    cudaEventDestroy(start);
    cudaEventDestroy(end);
    return milliseconds;
  }

  // All schemes, and where the candidates of each kind are among them.
  static constexpr uint32_t kAllSchemes = 7;
  static constexpr size_t kFirst = 0, kInParts = 2, kUnsupported = 3, kFaster = 4, kInPlace = 5,
                          kInOutputType = 6, kLargeWorkspace = 7, kBeginsWithC = 8;

 private:
  static constexpr int64_t kM = 8, kN = 4, kK = 96;
  static constexpr uint64_t kWorkspaceBytes = 1 << 16;

  const Gpu gpu_;
  std::vector<float> values_ = std::vector<float>(kM * kK);
  float *const a_ = gpu_.Floats(kM * kK), *const b_ = gpu_.Floats(kK * kN);
  float *const c_ = gpu_.Floats(kM * kN), *const workspace_ = gpu_.Floats(kWorkspaceBytes / 4);
  Description product_{
      CUBLAS_COMPUTE_32F,
      {{CUDA_R_32F, kM, kK, kM}, {CUDA_R_32F, kK, kN, kK}, {CUDA_R_32F, kM, kN, kM}}};
};

TEST_F(CandidatesTest, TheMaskSaysWhichSchemesAreOffered) {
  EXPECT_EQ(Offered(kAllSchemes).size(), 9u);
  EXPECT_EQ(Offered(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE).size(), 7u);
  EXPECT_EQ(Offered(CUBLASLT_REDUCTION_SCHEME_NONE).size(), 6u);
  EXPECT_EQ(Offered(kAllSchemes, 3).size(), 3u);
  const auto offered = Offered(kAllSchemes);
  EXPECT_EQ(offered[kUnsupported].state, CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(offered[kFaster].state, CUBLAS_STATUS_SUCCESS);
  EXPECT_GT(offered[kLargeWorkspace].workspaceSize, offered[kFirst].workspaceSize);
}

TEST_F(CandidatesTest, PartsOfASumHaveOtherBitsAndWithoutPartsNone) {
  const auto offered = Offered(kAllSchemes);
  const std::vector<float> first = Run(offered[kFirst]), in_parts = Run(offered[kInParts]);
  EXPECT_EQ(Run(offered[kFaster]), first);
  EXPECT_EQ(Run(offered[kLargeWorkspace]), first);
  EXPECT_NE(in_parts, first);
  EXPECT_EQ(Run(offered[kInParts]), in_parts);
  EXPECT_EQ(Run(offered[kInOutputType]), in_parts);  // fp32 is the output's type
}

TEST_F(CandidatesTest, WhatIsAddedCanChangeTheOrder) {
  const auto offered = Offered(kAllSchemes);
  const auto thrice = [&](size_t which) {
    std::vector<float> once = Run(offered[which]);
    Run(offered[which], 1);
    return std::pair(once, Run(offered[which], 1));
  };
  const auto first = thrice(kFirst), other = thrice(kBeginsWithC);
  EXPECT_EQ(other.first, first.first);
  EXPECT_NE(other.second, first.second);
  EXPECT_EQ(thrice(kFaster), first);
}

TEST_F(CandidatesTest, PartsInPlaceComeInNoFixedOrder) {
  const auto offered = Offered(kAllSchemes);
  const std::vector<float> once = Run(offered[kInPlace]);
  int others = 0;
  for (int run = 0; run < 40; ++run) others += Run(offered[kInPlace]) != once ? 1 : 0;
  EXPECT_GT(others, 0);
}

TEST_F(CandidatesTest, TakeTheirTimes) {
  const auto offered = Offered(kAllSchemes);
  const float first = Milliseconds(offered[kFirst]);
  EXPECT_GT(first, 0);
  EXPECT_NEAR(Milliseconds(offered[kFaster]), 0.8 * first, 1e-3 * first);
  EXPECT_NEAR(Milliseconds(offered[kInPlace]), 0.2 * first, 1e-3 * first);
}

TEST_F(LibrariesTest, EventsWithoutTimingTellNoTime) {
  const Gpu gpu;
  cudaEvent_t events[2] = {};
  for (cudaEvent_t& event : events) {
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaEventRecord(event, gpu.stream());
    cudaEventSynchronize(event);
  }
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, events[0], events[1]),
            cudaErrorInvalidResourceHandle);
  for (cudaEvent_t event : events) cudaEventDestroy(event);
}

TEST_F(LibrariesTest, AttributesHaveTheirSizes) {
  cublasLtMatmulDesc_t operation = nullptr;
  EXPECT_EQ(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_16F),
            CUBLAS_STATUS_NOT_SUPPORTED);
  ASSERT_EQ(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
            CUBLAS_STATUS_SUCCESS);
  const int leading = 8;  // 64 bits by the documentation
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
                                           &leading, sizeof(leading)),
            CUBLAS_STATUS_INVALID_VALUE);
  cublasLtMatmulDescDestroy(operation);
}

// A convolution of one image of ones, 8 x 8 x 3, by four filters of ones, 3 x 3 x 3, and what can
// be wrong with it.
struct Convolution {
  cudnnDataType_t x = CUDNN_DATA_FLOAT, y = CUDNN_DATA_FLOAT;
  int channels = 3;  // of the filter
  int height = 8;    // of y
  cudnnConvolutionFwdAlgo_t algorithm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  float alpha = 1;
  size_t workspace_bytes = 4096;
  int device = 0;  // the calling thread's; the handle's stream is one of GPU 0
};

struct ConvolutionOutcome {
  cudnnStatus_t status;
  std::vector<float> y;
};

ConvolutionOutcome ConvolutionOfOnes(const Convolution& c) {
  constexpr int kX = 8 * 8 * 3, kW = 4 * 3 * 3 * 3, kY = 8 * 8 * 4;
  const Gpu gpu;
  float *const x = gpu.Floats(kX), *const w = gpu.Floats(kW), *const y = gpu.Floats(kY);
  float* const workspace = gpu.Floats(4096 / 4);
  FillElements(gpu.stream(), x, kX, 1);
  FillElements(gpu.stream(), w, kW, 1);
  cudnnTensorDescriptor_t x_tensor = nullptr, y_tensor = nullptr;
  cudnnFilterDescriptor_t filter = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
  cudnnHandle_t handle = nullptr;
  cudnnCreate(&handle);
  cudnnSetStream(handle, gpu.stream());
  cudnnCreateTensorDescriptor(&x_tensor);
  cudnnCreateTensorDescriptor(&y_tensor);
  cudnnCreateFilterDescriptor(&filter);
  cudnnCreateConvolutionDescriptor(&convolution);
  cudnnSetTensor4dDescriptor(x_tensor, CUDNN_TENSOR_NHWC, c.x, 1, 3, 8, 8);
  cudnnSetTensor4dDescriptor(y_tensor, CUDNN_TENSOR_NHWC, c.y, 1, 4, c.height, 8);
  cudnnSetFilter4dDescriptor(filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC, 4, c.channels, 3, 3);
  cudnnSetConvolution2dDescriptor(convolution, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                  CUDNN_DATA_FLOAT);
  const float zero = 0;
  cudaSetDevice(c.device);
  const cudnnStatus_t status =
      cudnnConvolutionForward(handle, &c.alpha, x_tensor, x, filter, w, convolution, c.algorithm,
                              workspace, c.workspace_bytes, &zero, y_tensor, y);
  cudaSetDevice(0);
  size_t bytes = 0;
  const cudnnStatus_t asked = cudnnGetConvolutionForwardWorkspaceSize(
      handle, x_tensor, filter, convolution, y_tensor, c.algorithm, &bytes);
  // Who asks before the call hears of what the tensors have wrong.
  EXPECT_TRUE(asked == CUDNN_STATUS_SUCCESS || asked == status) << asked;
  cudnnDestroyConvolutionDescriptor(convolution);
  cudnnDestroyFilterDescriptor(filter);
  cudnnDestroyTensorDescriptor(y_tensor);
  cudnnDestroyTensorDescriptor(x_tensor);
  cudnnDestroy(handle);
  return {status, gpu.Read(y, kY)};
}

TEST_F(LibrariesTest, AConvolution) {
  const std::vector<float> y = ConvolutionOfOnes({}).y;
  EXPECT_EQ(y[0], 4 * 3);                // a corner, of which zeros pad five neighbours
  EXPECT_EQ(y[(3 * 8 + 3) * 4], 9 * 3);  // inside
}

struct RefusedConvolution {
  const char* name;
  Convolution convolution;
  cudnnStatus_t status;
  const char* message;
};

class RefusedConvolutionTest : public testing::TestWithParam<RefusedConvolution> {
 protected:
  RefusedConvolutionTest() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

TEST_P(RefusedConvolutionTest, IsRefused) {
  ExpectFound<cudnnStatus_t>([] { return ConvolutionOfOnes(GetParam().convolution).status; },
                             GetParam().status, GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Cudnn, RefusedConvolutionTest,
    testing::Values(
        RefusedConvolution{"Types",
                           {.x = CUDNN_DATA_HALF},
                           CUDNN_STATUS_NOT_SUPPORTED,
                           "tensors of several types"},
        RefusedConvolution{
            "Channels", {.channels = 4}, CUDNN_STATUS_NOT_SUPPORTED, "shapes that do not fit"},
        RefusedConvolution{
            "Extents", {.height = 7}, CUDNN_STATUS_NOT_SUPPORTED, "extents of y that x and"},
        RefusedConvolution{"Algorithm",
                           {.algorithm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM},
                           CUDNN_STATUS_NOT_SUPPORTED,
                           "an algorithm that has no NHWC"},
        RefusedConvolution{
            "Factor", {.alpha = 2}, CUDNN_STATUS_NOT_SUPPORTED, "factors are not emulated"},
        RefusedConvolution{
            "Workspace", {.workspace_bytes = 4095}, CUDNN_STATUS_BAD_PARAM, "too little workspace"},
        RefusedConvolution{"SetDevice",
                           {.device = 1},
                           CUDNN_STATUS_EXECUTION_FAILED,
                           "the handle is not one of the calling thread's GPU"}),
    [](const auto& refused) { return refused.param.name; });

TEST_F(LibrariesTest, DescriptorsThatAreNotSupported) {
  cudnnTensorDescriptor_t tensor = nullptr;
  cudnnFilterDescriptor_t filter = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
  cudnnCreateTensorDescriptor(&tensor);
  cudnnCreateFilterDescriptor(&filter);
  cudnnCreateConvolutionDescriptor(&convolution);
  const auto set = [&](cudnnTensorFormat_t format, int n, int side) {
    return cudnnSetTensor4dDescriptor(tensor, format, CUDNN_DATA_FLOAT, n, 2, side, side);
  };
  EXPECT_EQ(set(CUDNN_TENSOR_NHWC, 1, 8), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(set(CUDNN_TENSOR_NCHW, 1, 8), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(set(CUDNN_TENSOR_NHWC, 0, 8), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(set(CUDNN_TENSOR_NHWC, 1, 1 << 15), CUDNN_STATUS_NOT_SUPPORTED);  // 2^31 elements
  EXPECT_EQ(cudnnSetFilter4dDescriptor(filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 4, 3, 3, 3),
            CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(cudnnSetConvolution2dDescriptor(convolution, 1, 1, 1, 1, 2, 1, CUDNN_CROSS_CORRELATION,
                                            CUDNN_DATA_FLOAT),
            CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(cudnnSetConvolution2dDescriptor(convolution, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                            CUDNN_DATA_HALF),
            CUDNN_STATUS_NOT_SUPPORTED);
  cudnnDestroyConvolutionDescriptor(convolution);
  cudnnDestroyFilterDescriptor(filter);
  cudnnDestroyTensorDescriptor(tensor);
}

}  // namespace
}  // namespace lockstep::emulation
