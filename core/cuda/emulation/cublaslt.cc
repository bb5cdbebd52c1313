// cuBLASLt on emulated GPUs. An element of a product is one chain of fused multiply-adds over the
// inner dimension in fp32, rounded once. Where the chain begins depends on the shape for which the
// heuristic chose the algorithm, and on no other shape that it is used for.
// But what lies in C where D replaces it is added to what was rounded, and so is a bias where rows
// of 16 bits begin at no multiples of 16 bytes, as cuBLASLt 13.1 does on an H200.
// Some of the candidates that the heuristic offers cut the inner dimension, and so have other bits.
//
// LOCKSTEP_EMULATED_CUBLASLT_BIAS_GRADIENTS=0: there is no algorithm for epilogues that give bias
// gradients, as there may be none for a shape.

#include "cublasLt.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/cuda/emulation/elements.h"
#include "core/cuda/emulation/handles.h"
#include "glog/logging.h"

struct cublasLtContext {};

struct EmulatedMatmulDesc {
  cublasComputeType_t compute;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* aux = nullptr;
  int64_t aux_leading = 0;
};

struct EmulatedMatrixLayout {
  cudaDataType type;
  int64_t rows, columns, leading;
};

struct EmulatedMatmulPreference {
  uint64_t workspace_bytes = 0;
  uint32_t reduction_schemes = 7;
  uint32_t alignments[4] = {256, 256, 256, 256};  // of a, b, c, d
};

namespace lockstep::emulation {
namespace {

cublasStatus_t RefuseProduct(cublasStatus_t status, const std::string& why) {
  LOG(ERROR) << "emulated cuBLASLt: " << why;
  return status;
}

ElementType TypeOf(cudaDataType type) {
  return type == CUDA_R_32F   ? ElementType::kF32
         : type == CUDA_R_16F ? ElementType::kF16
                              : ElementType::kBF16;
}

// How a candidate of the heuristic computes, and what time it says that it has taken.
struct Candidate {
  int64_t splits;  // of the inner dimension
  cublasLtReductionScheme_t scheme;
  uint64_t percent;          // of the time that the first candidate takes
  uint64_t workspace_units;  // of those of the first
  bool is_supported = true;  // cublasLtMatmulHeuristicResult_t::state
  // Whether the sum begins with beta C, in place of ending with it: other bits where beta is not 0.
  bool begins_with_c = false;
};

// In the order of the heuristic's estimates, which are wrong: that is why candidates are timed.
constexpr Candidate kCandidates[] = {
    {1, CUBLASLT_REDUCTION_SCHEME_NONE, 100, 1},
    {1, CUBLASLT_REDUCTION_SCHEME_NONE, 150, 1},
    {2, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 50, 1},
    {1, CUBLASLT_REDUCTION_SCHEME_NONE, 10, 1, false},
    {1, CUBLASLT_REDUCTION_SCHEME_NONE, 80, 1},
    {4, CUBLASLT_REDUCTION_SCHEME_INPLACE, 20, 1},
    {2, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, 30, 1},
    {1, CUBLASLT_REDUCTION_SCHEME_NONE, 40, 2},
    {1, CUBLASLT_REDUCTION_SCHEME_NONE, 60, 1, true, true},
};

// Where a cublasLtMatmulAlgo_t has what, behind the alignments of the four matrices.
constexpr int kWorkspaceBytes = 4, kCandidate = 5, kBiasAlignment = 6, kHalf = 7;

// In which half of the inner dimension sums begin that were chosen for results of this shape.
uint64_t HalfOf(const EmulatedMatrixLayout& d) {
  constexpr int64_t kPeriod = 1024, kUnit = 16;
  return static_cast<uint64_t>((d.rows % kPeriod + d.columns % kPeriod) / kUnit % 2);
}

// A product with all that it refers to: a copy, since the stream comes to it when the descriptors
// may be others'.
struct Product {
  EmulatedMatmulDesc operation;
  EmulatedMatrixLayout a_layout, b_layout, c_layout, d_layout;
  float alpha, beta;
  const void *a, *b, *c;
  void* d;
  void* workspace;
  size_t workspace_bytes;
  Candidate candidate;
  uint64_t order;  // in which parts that are added in place come
  uint64_t half;   // in which sums begin

  int64_t bias_gradients() const {
    return operation.epilogue == CUBLASLT_EPILOGUE_BGRADA ? m() : n();
  }
  int64_t m() const { return d_layout.rows; }
  int64_t n() const { return d_layout.columns; }
  int64_t k() const {
    return operation.transpose_a == CUBLAS_OP_N ? a_layout.columns : a_layout.rows;
  }
};

bool HasBiasGradient(cublasLtEpilogue_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_BGRADA || epilogue == CUBLASLT_EPILOGUE_BGRADB;
}
bool HasBias(cublasLtEpilogue_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}
bool HasAux(cublasLtEpilogue_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || epilogue == CUBLASLT_EPILOGUE_DGELU;
}

// Why the documentation has no such product, or empty.
std::string JudgeShapes(const EmulatedMatmulDesc& operation, const EmulatedMatrixLayout& a,
                        const EmulatedMatrixLayout& b, const EmulatedMatrixLayout& c,
                        const EmulatedMatrixLayout& d) {
  const bool a_turned = operation.transpose_a == CUBLAS_OP_T;
  const bool b_turned = operation.transpose_b == CUBLAS_OP_T;
  const int64_t m = a_turned ? a.columns : a.rows, k = a_turned ? a.rows : a.columns;
  const int64_t n = b_turned ? b.rows : b.columns;
  if (k != (b_turned ? b.columns : b.rows)) return "inner dimensions that differ";
  if (d.rows != m || d.columns != n || c.rows != m || c.columns != n) {
    return absl::StrCat("a result of ", d.rows, " x ", d.columns, " for ", m, " x ", n);
  }
  if (m == 0 || n == 0 || k == 0) return "a dimension of 0";
  for (const EmulatedMatrixLayout* layout : {&a, &b, &c, &d}) {
    if (layout->leading < layout->rows) return "a leading dimension below the rows";
    // The documented limit of cublasLtMatrixLayout is 64 bits, that of its kernels is not.
    if (layout->rows > 0x7fffffff || layout->columns > 0x7fffffff) return "more than 2^31 rows";
  }
  if (a.type != b.type) return "operands of two types";
  if (c.type != d.type || (d.type != a.type && d.type != CUDA_R_32F)) {
    return "a type of the result that the operands' type does not go with";
  }
  if (operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a.type != CUDA_R_32F) {
    return "TF32 for operands of 16 bits";
  }
  return "";
}

std::string JudgeEpilogue(const EmulatedMatmulDesc& operation, const EmulatedMatrixLayout& d) {
  constexpr int64_t kAuxUnit = 8;
  constexpr uintptr_t kAuxAlignment = 16;
  if (HasBias(operation.epilogue) && operation.bias == nullptr) return "no bias";
  if (HasBiasGradient(operation.epilogue)) {
    const char* const answer = std::getenv("LOCKSTEP_EMULATED_CUBLASLT_BIAS_GRADIENTS");
    if (answer != nullptr && std::string(answer) == "0") return "bias gradients are not supported";
    if (operation.bias == nullptr) return "no vector for the bias gradient";
  }
  if (!HasAux(operation.epilogue)) return "";
  if (operation.aux == nullptr) return "no auxiliary matrix";
  if (reinterpret_cast<uintptr_t>(operation.aux) % kAuxAlignment != 0) {
    return "an auxiliary matrix not aligned to 16 bytes";
  }
  if (operation.aux_leading % kAuxUnit != 0 || operation.aux_leading < d.rows) {
    return absl::StrCat("a leading dimension of the auxiliary matrix of ", operation.aux_leading);
  }
  return "";
}

// The bytes that a matrix takes.
size_t BytesOf(const EmulatedMatrixLayout& layout) {
  return static_cast<size_t>((layout.columns - 1) * layout.leading + layout.rows) *
         SizeOf(TypeOf(layout.type));
}

std::optional<Fault> JudgeMemory(const Product& p, int device) {
  struct Use {
    const char* what;
    const void* address;
    size_t bytes;
  };
  std::vector<Use> uses = {{"reads A,", p.a, BytesOf(p.a_layout)},
                           {"reads B,", p.b, BytesOf(p.b_layout)},
                           {"writes D,", p.d, BytesOf(p.d_layout)}};
  if (p.beta != 0) uses.push_back({"reads C,", p.c, BytesOf(p.c_layout)});
  if (p.workspace_bytes > 0) uses.push_back({"uses workspace,", p.workspace, p.workspace_bytes});
  const size_t element = SizeOf(TypeOf(p.d_layout.type));
  if (HasBias(p.operation.epilogue)) {
    uses.push_back({"reads the bias,", p.operation.bias, static_cast<size_t>(p.m()) * element});
  }
  if (HasBiasGradient(p.operation.epilogue)) {
    uses.push_back({"writes the bias gradient,", p.operation.bias,
                    static_cast<size_t>(p.bias_gradients()) * element});
  }
  if (HasAux(p.operation.epilogue)) {
    const auto last = static_cast<size_t>((p.n() - 1) * p.operation.aux_leading + p.m());
    uses.push_back({"uses the auxiliary matrix,", p.operation.aux, last * element});
  }
  for (const Use& use : uses) {
    auto fault = JudgeAccess("cublasLtMatmul", device, use.what, use.address, use.bytes);
    if (fault.has_value()) return fault;
  }
  return std::nullopt;
}

// op(X) as rows of fp32, `columns` each, so that element (i, j) is at i * columns + j.
std::vector<float> Unpack(const void* data, const EmulatedMatrixLayout& layout, bool row_is_column,
                          bool rounds) {
  const ElementType type = TypeOf(layout.type);
  const int64_t rows = row_is_column ? layout.columns : layout.rows;
  const int64_t columns = row_is_column ? layout.rows : layout.columns;
  std::vector<float> unpacked(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const int64_t at = row_is_column ? i * layout.leading + j : j * layout.leading + i;
      const float value = LoadElement(type, data, at);
      unpacked[static_cast<size_t>(i * columns + j)] = rounds ? RoundToTf32(value) : value;
    }
  }
  return unpacked;
}

float Sigmoid(double x) { return static_cast<float>(1 / (1 + std::exp(-x))); }

constexpr double kGeluTwoRoot = 1.5957691216057308;  // 2 sqrt(2 / pi)
constexpr double kGeluCubic = 0.044715;

float Gelu(float x) { return x * Sigmoid(kGeluTwoRoot * (x + kGeluCubic * x * x * x)); }

float GeluSlope(float x) {
  const double s = Sigmoid(kGeluTwoRoot * (x + kGeluCubic * x * x * x));
  return static_cast<float>(s + x * s * (1 - s) * kGeluTwoRoot * (1 + 3 * kGeluCubic * x * x));
}

float AddendOf(const Product& p, int64_t row, int64_t column) {
  return p.beta * LoadElement(TypeOf(p.c_layout.type), p.c, column * p.c_layout.leading + row);
}

// Whether all columns of 16 bits begin at multiples of 16 bytes.
bool HasAlignedColumns(const Product& p) {
  constexpr int64_t kUnit = 8;
  return p.a_layout.leading % kUnit == 0 && p.b_layout.leading % kUnit == 0 &&
         p.d_layout.leading % kUnit == 0;
}

float RoundTo(ElementType type, float value) {
  float rounded = 0;
  StoreElement(type, &rounded, 0, value);
  return LoadElement(type, &rounded, 0);
}

// Stores one element, (row, column) of D.
void Finish(const Product& p, int64_t row, int64_t column, float sum) {
  const ElementType type = TypeOf(p.d_layout.type);
  float value = p.alpha * sum;
  if (p.beta != 0 && !p.candidate.begins_with_c) {
    if (p.c == p.d) value = RoundTo(type, value);  // which changes nothing in fp32
    value += AddendOf(p, row, column);
  }
  const EmulatedMatmulDesc& operation = p.operation;
  const int64_t aux = column * operation.aux_leading + row;
  if (HasBias(operation.epilogue)) {
    if (!HasAlignedColumns(p)) value = RoundTo(type, value);
    value += LoadElement(type, operation.bias, row);
  }
  if (operation.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
    StoreElement(type, operation.aux, aux, value);
    value = Gelu(value);
  } else if (operation.epilogue == CUBLASLT_EPILOGUE_DGELU) {
    value *= GeluSlope(LoadElement(type, operation.aux, aux));
  }
  StoreElement(type, p.d, column * p.d_layout.leading + row, value);
}

// The sums over the inner dimension of a, [k, m], or b, [n, k].
void StoreBiasGradient(const Product& p, const std::vector<float>& a, const std::vector<float>& b) {
  const bool is_of_a = p.operation.epilogue == CUBLASLT_EPILOGUE_BGRADA;
  const int64_t k = p.k();
  for (int64_t i = 0; i < p.bias_gradients(); ++i) {
    float sum = 0;
    for (int64_t inner = 0; inner < k; ++inner) {
      sum += is_of_a ? a[static_cast<size_t>(inner * p.m() + i)]
                     : b[static_cast<size_t>(i * k + inner)];
    }
    StoreElement(TypeOf(p.d_layout.type), const_cast<void*>(p.operation.bias), i, sum);
  }
}

void Compute(const Product& p) {
  const bool rounds = p.operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const int64_t m = p.m(), n = p.n(), k = p.k();
  // a: [k, m], so that a column of D is a sum of its rows; b: [n, k].
  const std::vector<float> a =
      Unpack(p.a, p.a_layout, p.operation.transpose_a == CUBLAS_OP_N, rounds);
  const std::vector<float> b =
      Unpack(p.b, p.b_layout, p.operation.transpose_b == CUBLAS_OP_N, rounds);
  const bool keeps_output_type = p.candidate.scheme == CUBLASLT_REDUCTION_SCHEME_INPLACE ||
                                 p.candidate.scheme == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  const int64_t part = (k + p.candidate.splits - 1) / p.candidate.splits;
  std::vector<float> sums(static_cast<size_t>(m)), parts(sums.size());
  for (int64_t column = 0; column < n; ++column) {
    for (int64_t i = 0; i < p.candidate.splits; ++i) {
      // Parts that are added in place come in any order.
      const int64_t which = (i + static_cast<int64_t>(p.order)) % p.candidate.splits;
      const int64_t begin = std::min(k, which * part), end = std::min(k, begin + part);
      std::fill(parts.begin(), parts.end(), 0.0f);
      if (p.beta != 0 && p.candidate.begins_with_c) {
        for (int64_t row = 0; row < m; ++row) parts[row] = AddendOf(p, row, column);
      }
      for (int64_t step = 0; step < end - begin; ++step) {
        const int64_t first = static_cast<int64_t>(p.half) * (end - begin) / 2;
        const int64_t inner = begin + (first + step) % (end - begin);
        const float factor = b[static_cast<size_t>(column * k + inner)];
        const float* const terms = a.data() + inner * m;
#pragma omp simd
        for (int64_t row = 0; row < m; ++row) parts[row] = std::fma(terms[row], factor, parts[row]);
      }
      for (int64_t row = 0; row < m; ++row) {
        const float sum = i == 0 ? parts[row] : sums[row] + parts[row];
        sums[row] = keeps_output_type ? RoundTo(TypeOf(p.d_layout.type), sum) : sum;
      }
    }
    for (int64_t row = 0; row < m; ++row) Finish(p, row, column, sums[row]);
  }
  if (HasBiasGradient(p.operation.epilogue)) StoreBiasGradient(p, a, b);
}

uint64_t NanosOf(const Product& p) {
  constexpr uint64_t kOfLaunch = 1000;  // and one for each multiply-add
  const auto all = kOfLaunch + static_cast<uint64_t>(p.m() * p.n() * p.k());
  return all * p.candidate.percent / 100;
}

// The largest power of two up to 256 that the address is a multiple of.
uint64_t AlignmentOf(const void* address) {
  constexpr uint64_t kMost = 256;
  const uint64_t bits = reinterpret_cast<uintptr_t>(address) | kMost;
  return bits & (~bits + 1);
}

bool IsAligned(const void* address, uint64_t bytes) {
  return bytes == 0 || reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

}  // namespace
}  // namespace lockstep::emulation

using lockstep::emulation::Fault;
using lockstep::emulation::kBiasAlignment;
using lockstep::emulation::kCandidate;
using lockstep::emulation::kCandidates;
using lockstep::emulation::kHalf;
using lockstep::emulation::kWorkspaceBytes;
using lockstep::emulation::Product;
using lockstep::emulation::RefuseProduct;

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "a status that cuBLAS does not have";
}

size_t cublasLtGetVersion() { return 130100; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation,
                                        cublasComputeType_t compute, cudaDataType scale) {
  if (scale != CUDA_R_32F) {
    return RefuseProduct(CUBLAS_STATUS_NOT_SUPPORTED, "factors in another type than fp32");
  }
  *operation = new EmulatedMatmulDesc{.compute = compute};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  delete operation;
  return CUBLAS_STATUS_SUCCESS;
}

namespace {

template <typename T>
cublasStatus_t SetValue(T& to, const void* value, size_t bytes) {
  if (bytes != sizeof(T)) {
    return RefuseProduct(
        CUBLAS_STATUS_INVALID_VALUE,
        absl::StrCat("an attribute of ", bytes, " bytes where there are ", sizeof(T)));
  }
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return SetValue(operation->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return SetValue(operation->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return SetValue(operation->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return SetValue(operation->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return SetValue(operation->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return SetValue(operation->aux_leading, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  *layout = new EmulatedMatrixLayout{type, static_cast<int64_t>(rows),
                                     static_cast<int64_t>(columns), leading};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new EmulatedMatmulPreference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return SetValue(preference->workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return SetValue(preference->reduction_schemes, value, bytes);
    default:
      return SetValue(
          preference->alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value,
          bytes);
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  *found = 0;
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  // So cuBLASLt 13.1 answers, where NOT_SUPPORTED would do.
  if (lockstep::emulation::HasAux(operation->epilogue) && operation->aux_leading < d->rows) {
    return RefuseProduct(CUBLAS_STATUS_INVALID_VALUE, "rows of the auxiliary matrix that overlap");
  }
  std::string problem = lockstep::emulation::JudgeShapes(*operation, *a, *b, *c, *d);
  if (problem.empty()) problem = lockstep::emulation::JudgeEpilogue(*operation, *d);
  if (!problem.empty()) return RefuseProduct(CUBLAS_STATUS_NOT_SUPPORTED, problem);
  // Algorithms that want some workspace, and the alignment that they were promised.
  constexpr size_t kUnit = 4096;
  const size_t limit = preference->workspace_bytes, first = std::min<size_t>(kUnit, limit);
  for (uint64_t i = 0; i < std::size(kCandidates) && *found < wanted; ++i) {
    const lockstep::emulation::Candidate& candidate = kCandidates[i];
    if ((candidate.scheme & ~preference->reduction_schemes) != 0) continue;
    if (candidate.workspace_units * first > limit) continue;
    cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
    result = {};
    result.state = candidate.is_supported ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
    if (!candidate.is_supported) continue;
    result.workspaceSize = candidate.workspace_units * first;
    std::copy(std::begin(preference->alignments), std::end(preference->alignments),
              result.algo.data);
    result.algo.data[kWorkspaceBytes] = result.workspaceSize;
    result.algo.data[kCandidate] = i;
    result.algo.data[kBiasAlignment] = lockstep::emulation::AlignmentOf(operation->bias);
    result.algo.data[kHalf] = lockstep::emulation::HalfOf(*d);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
  std::string problem = lockstep::emulation::JudgeShapes(*operation, *a, *b, *c, *d);
  if (problem.empty()) problem = lockstep::emulation::JudgeEpilogue(*operation, *d);
  if (!problem.empty()) return RefuseProduct(CUBLAS_STATUS_NOT_SUPPORTED, problem);
  // An H200 refuses results of one row (of column-major matrices) by an algorithm for many.
  if (d->rows == 1) return CUBLAS_STATUS_NOT_SUPPORTED;
  result->workspaceSize = algo->data[kWorkspaceBytes];
  result->state = CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  std::string problem =
      lockstep::emulation::JudgeShapes(*operation, *a_layout, *b_layout, *c_layout, *d_layout);
  if (problem.empty()) problem = lockstep::emulation::JudgeEpilogue(*operation, *d_layout);
  if (!problem.empty()) return RefuseProduct(CUBLAS_STATUS_NOT_SUPPORTED, problem);
  const void* const pointers[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i) {
    if (!lockstep::emulation::IsAligned(pointers[i], algo->data[i])) {
      return RefuseProduct(CUBLAS_STATUS_INVALID_VALUE,
                           absl::StrCat("operand ", i, " is less aligned than the ", algo->data[i],
                                        " bytes that its algorithm was chosen for"));
    }
  }
  const bool has_vector = lockstep::emulation::HasBias(operation->epilogue) ||
                          lockstep::emulation::HasBiasGradient(operation->epilogue);
  if (has_vector && !lockstep::emulation::IsAligned(operation->bias, algo->data[kBiasAlignment])) {
    return RefuseProduct(CUBLAS_STATUS_INVALID_VALUE,
                         "the bias is less aligned than the one that its algorithm was chosen for");
  }
  if (workspace_bytes < algo->data[kWorkspaceBytes]) {
    return RefuseProduct(CUBLAS_STATUS_INVALID_VALUE, "too little workspace");
  }
  const int device = stream->stream->device;
  if (device != lockstep::emulation::CurrentDevice()) {
    return RefuseProduct(CUBLAS_STATUS_EXECUTION_FAILED,
                         "the stream is not one of the calling thread's GPU (cudaSetDevice)");
  }
  const lockstep::emulation::Candidate& candidate = kCandidates[algo->data[kCandidate]];
  const Product product = {.operation = *operation,
                           .a_layout = *a_layout,
                           .b_layout = *b_layout,
                           .c_layout = *c_layout,
                           .d_layout = *d_layout,
                           .alpha = *static_cast<const float*>(alpha),
                           .beta = *static_cast<const float*>(beta),
                           .a = a,
                           .b = b,
                           .c = c,
                           .d = d,
                           .workspace = workspace,
                           .workspace_bytes = workspace_bytes,
                           .candidate = candidate,
                           .order = candidate.scheme == CUBLASLT_REDUCTION_SCHEME_INPLACE
                                        ? lockstep::emulation::Machine::Get().Random() % 1024
                                        : 0,
                           .half = algo->data[kHalf]};
  lockstep::emulation::QueueOn(
      stream, {.name = "cublasLtMatmul",
               .run = [product, device, of_stream = stream->stream]() -> std::optional<Fault> {
                 auto fault = lockstep::emulation::JudgeMemory(product, device);
                 if (fault.has_value()) return fault;
                 // What is left in the workspace is no one's to read.
                 if (product.workspace_bytes > 0) {
                   std::memset(product.workspace, 0xff, product.workspace_bytes);
                 }
                 lockstep::emulation::Compute(product);
                 of_stream->nanos += lockstep::emulation::NanosOf(product);
                 return std::nullopt;
               }});
  return CUBLAS_STATUS_SUCCESS;
}
