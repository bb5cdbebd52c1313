#include "core/kernels/cuda/matrix_products.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/cuda/error.h"
#include "core/cuda/libraries/libraries.h"
#include "core/kernels/cuda/trials.h"
#include "glog/logging.h"

namespace lockstep::cuda {
namespace {

// The most that cuBLASLt may use to cut long sums; what it recommends for Hopper.
constexpr uint64_t kWorkspaceBytes = 32 << 20;

void ThrowIfFailed(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw StatusException(absl::InternalError(
      absl::StrCat(__FILE__, ": ", call, ": ", cublasLtGetStatusString(status))));
}

#define LS_CUBLASLT(...) ThrowIfFailed((__VA_ARGS__), #__VA_ARGS__)

cudaDataType TypeOf(DType dtype) {
  CHECK(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16) << Name(dtype);
  return dtype == DType::kF32 ? CUDA_R_32F : dtype == DType::kF16 ? CUDA_R_16F : CUDA_R_16BF;
}

cublasLtEpilogue_t EpilogueOf(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::kBiasAndGelu:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::kGeluSlope:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::kSumsOfA:
      return CUBLASLT_EPILOGUE_BGRADB;  // our a is its B
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

cublasOperation_t OperationOf(Transpose transpose) {
  return transpose == Transpose::kYes ? CUBLAS_OP_T : CUBLAS_OP_N;
}

std::string Describe(const MatrixProduct& p) {
  return absl::StrCat(p.a.ToString(), p.transpose_a == Transpose::kYes ? "^T" : "", " times ",
                      p.b.ToString(), p.transpose_b == Transpose::kYes ? "^T" : "", " to ",
                      p.c.ToString());
}

// What a product writes, and what it reads.
std::vector<Tensor> WrittenBy(const MatrixProduct& p) {
  std::vector<Tensor> written = {p.c};
  if (p.epilogue == Epilogue::kBiasAndGelu) written.push_back(p.pre);
  if (p.epilogue == Epilogue::kSumsOfA) written.push_back(p.a_sums);
  return written;
}
std::vector<Tensor> ReadBy(const MatrixProduct& p) {
  std::vector<Tensor> read = {p.a, p.b};
  for (const Tensor& x : {p.addend, p.bias}) {
    if (x.defined()) read.push_back(x);
  }
  if (p.epilogue == Epilogue::kGeluSlope) read.push_back(p.pre);
  return read;
}

// Whether the product leaves all that it reads as it is, so that it may run several times.
bool IsRepeatable(const MatrixProduct& p) {
  for (const Tensor& to : WrittenBy(p)) {
    for (const Tensor& from : ReadBy(p)) {
      if (to.raw() < from.raw() + from.bytes() && from.raw() < to.raw() + to.bytes()) return false;
    }
  }
  return true;
}

// Whether the product is one that may be added to its result in place later.
bool HasKindInPlace(const MatrixProduct& p) {
  const bool is_plain = p.epilogue == Epilogue::kNone || p.epilogue == Epilogue::kSumsOfA;
  return is_plain && !p.addend.defined() && p.c.dtype() == DType::kF32;
}

bool IsCapturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  LS_CUDA(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

struct DestroyLayout {
  void operator()(cublasLtMatrixLayout_t layout) const { cublasLtMatrixLayoutDestroy(layout); }
};
using Layout = std::unique_ptr<std::remove_pointer_t<cublasLtMatrixLayout_t>, DestroyLayout>;

Layout LayoutOf(DType dtype, int64_t rows, int64_t columns) {
  cublasLtMatrixLayout_t made = nullptr;
  LS_CUBLASLT(cublasLtMatrixLayoutCreate(&made, TypeOf(dtype), rows, columns, rows));
  return Layout(made);
}

// cuBLASLt's matrices are column-major: row-major ones are their transposes to it, so it computes
// c^T[n, m] = op(b)^T op(a)^T. A stays for its first operand here, our b.
struct Layouts {
  // As if the result were [m, n].
  Layouts(const MatrixProduct& p, int64_t m, int64_t n)
      : a(p.transpose_b == Transpose::kYes ? LayoutOf(p.b.dtype(), p.k, n)
                                           : LayoutOf(p.b.dtype(), n, p.k)),
        b(p.transpose_a == Transpose::kYes ? LayoutOf(p.a.dtype(), m, p.k)
                                           : LayoutOf(p.a.dtype(), p.k, m)),
        c(LayoutOf(p.c.dtype(), n, m)) {}

  Layout a, b, c;
};

// The extent for which an algorithm is chosen that serves all extents: as divisible by powers of
// two up to 8 as this one, since rows of so many elements are aligned alike.
int64_t RepresentativeExtent(int64_t extent) {
  constexpr int64_t kLarge = 1024, kVector = 8;
  const int64_t beyond = extent % kVector;
  return kLarge + (beyond & -beyond);
}

}  // namespace

struct MatrixProducts::Plan {
  explicit Plan(const MatrixProduct& p) : layouts(p, p.m, p.n) {}
  ~Plan() {
    if (preference != nullptr) cublasLtMatmulPreferenceDestroy(preference);
    if (operation != nullptr) cublasLtMatmulDescDestroy(operation);
  }

  template <typename T>
  void Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    LS_CUBLASLT(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)));
  }
  template <typename T>
  void Prefer(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    LS_CUBLASLT(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)));
  }

  // How parts of a long sum may be added, if at all.
  void SetReductions(cublasLtReductionScheme_t schemes) {
    Prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(schemes));
  }

  // What the heuristic offers for these layouts, its first choice first; none where it knows none.
  std::vector<cublasLtMatmulHeuristicResult_t> Offers(cublasLtHandle_t handle, const Layouts& of,
                                                      int most) const {
    std::vector<cublasLtMatmulHeuristicResult_t> offered(static_cast<size_t>(most));
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, operation, of.a.get(), of.b.get(), of.c.get(),
                                       of.c.get(), preference, most, offered.data(), &found);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) LS_CUBLASLT(status);
    offered.resize(static_cast<size_t>(found));
    return offered;
  }

  const Layouts layouts;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  // Those that may be taken, the one that is taken without trial first; none: cuBLASLt has none.
  std::vector<cublasLtMatmulHeuristicResult_t> algorithms;
  size_t workspace_bytes = 0;
  size_t chosen = 0;
  int calls_to_try = 0;  // how many more calls may choose
  bool has_tried = false;
};

MatrixProducts::MatrixProducts(const CudaContext& context, Fp32Products fp32_products,
                               ProductShapes shapes, const ProductTrials& trials)
    : context_(context), fp32_products_(fp32_products), shapes_(shapes), trials_(trials) {
  ThrowIfError(LoadCublasLt());
  context.MakeCurrent();
  LS_CUBLASLT(cublasLtCreate(&handle_));
}

MatrixProducts::~MatrixProducts() { cublasLtDestroy(handle_); }

MatrixProducts::Key MatrixProducts::KeyOf(const MatrixProduct& p, bool has_addend) {
  return {p.m,         p.n,         p.k,        p.transpose_a, p.transpose_b,
          p.a.dtype(), p.c.dtype(), p.epilogue, has_addend};
}

MatrixProducts::Plan& MatrixProducts::PlanOf(const MatrixProduct& p) {
  std::unique_ptr<Plan>& kept = plans_[KeyOf(p, p.addend.defined())];
  if (kept != nullptr) return *kept;
  auto plan = std::make_unique<Plan>(p);
  const bool rounds = p.a.dtype() == DType::kF32 && fp32_products_ == Fp32Products::kTf32;
  LS_CUBLASLT(cublasLtMatmulDescCreate(
      &plan->operation, rounds ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  plan->Set(CUBLASLT_MATMUL_DESC_TRANSA, OperationOf(p.transpose_b));
  plan->Set(CUBLASLT_MATMUL_DESC_TRANSB, OperationOf(p.transpose_a));
  plan->Set(CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(p.epilogue));
  // An algorithm is chosen for these pointers' alignment, and null would count as aligned to
  // anything.
  const auto aligned = reinterpret_cast<void*>(uintptr_t{kAlignment});
  if (p.bias.defined()) {
    plan->Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(aligned));
  }
  if (p.a_sums.defined()) plan->Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned);
  if (p.pre.defined()) {
    plan->Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aligned);
    plan->Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.n);
  }
  LS_CUBLASLT(cublasLtMatmulPreferenceCreate(&plan->preference));
  plan->Prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  // Parts of a long sum are added in fp32 and in one order: else two runs might differ, or a 16-bit
  // result be rounded more than once.
  plan->SetReductions(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    plan->Prefer(attribute, static_cast<uint32_t>(kAlignment));
  }
  if (shapes_ == ProductShapes::kDivided) AddAlgorithmForAllShapes(p, *plan);
  AddAlgorithmsOfShape(p, *plan);
  if (plan->algorithms.size() > 1) plan->calls_to_try = trials_.most_calls;
  kept = std::move(plan);
  return *kept;
}

void MatrixProducts::AddAlgorithmForAllShapes(const MatrixProduct& p, Plan& plan) {
  // Rows of c and of b have n elements, those of a that is turned m.
  const int64_t m = RepresentativeExtent(p.transpose_a == Transpose::kYes ? p.m : 0),
                n = RepresentativeExtent(p.n);
  plan.SetReductions(CUBLASLT_REDUCTION_SCHEME_NONE);
  if (p.pre.defined()) plan.Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, n);
  const auto offers = plan.Offers(handle_, Layouts(p, m, n), 1);
  if (p.pre.defined()) plan.Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.n);
  plan.SetReductions(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  for (const auto& offer : offers) {
    if (offer.state != CUBLAS_STATUS_SUCCESS) continue;
    cublasLtMatmulHeuristicResult_t here = {};
    const Layouts& own = plan.layouts;
    const cublasStatus_t status =
        cublasLtMatmulAlgoCheck(handle_, plan.operation, own.a.get(), own.b.get(), own.c.get(),
                                own.c.get(), &offer.algo, &here);
    if (status != CUBLAS_STATUS_SUCCESS || here.workspaceSize > kWorkspaceBytes) continue;
    here.algo = offer.algo;
    plan.algorithms.push_back(here);
    plan.workspace_bytes = here.workspaceSize;
  }
  LOG_IF(WARNING, plan.algorithms.empty() && !has_told_)
      << "a rank that has some rows or columns of a product may have other bits than one that has "
         "all, where cuBLASLt's algorithm for all shapes does not serve; the first such: "
      << Describe(p);
  has_told_ |= plan.algorithms.empty();
}

bool MatrixProducts::MayTryShape(const MatrixProduct& p) {
  Key of_any_m = KeyOf(p, p.addend.defined()), of_any_k = of_any_m;
  std::get<0>(of_any_m) = 0;
  std::get<2>(of_any_k) = 0;
  return std::max(++shapes_of_kind_[of_any_m], ++shapes_of_kind_[of_any_k]) <= trials_.most_shapes;
}

void MatrixProducts::AddAlgorithmsOfShape(const MatrixProduct& p, Plan& plan) {
  const bool is_large = p.m * p.n * p.k >= trials_.least_multiply_adds;
  const bool is_tried = is_large && MayTryShape(p);
  if (!is_tried && !plan.algorithms.empty()) return;
  bool is_first = true;
  // As many of a large product that is not tried: the first of one offer might be another.
  for (const auto& algorithm :
       plan.Offers(handle_, plan.layouts, is_large ? trials_.candidates : 1)) {
    if (algorithm.state != CUBLAS_STATUS_SUCCESS) continue;
    if (is_first) plan.workspace_bytes = std::max(plan.workspace_bytes, algorithm.workspaceSize);
    is_first = false;
    if (!is_tried && !plan.algorithms.empty()) break;
    if (algorithm.workspaceSize <= plan.workspace_bytes) plan.algorithms.push_back(algorithm);
  }
}

void MatrixProducts::Run(Allocator& allocator, const MatrixProduct& p) {
  if (TryRun(allocator, p)) return;
  throw StatusException(absl::UnimplementedError(absl::StrCat(
      "cuBLASLt has no algorithm for ", Describe(p), ", epilogue ", static_cast<int>(p.epilogue))));
}

bool MatrixProducts::TryRun(Allocator& allocator, const MatrixProduct& p) {
  CHECK(p.a.dtype() == p.b.dtype()) << Describe(p);
  CHECK(p.c.dtype() == p.a.dtype() || p.c.dtype() == DType::kF32) << Describe(p);
  CHECK(p.c.dtype() == DType::kF32 || !p.addend.defined() || p.addend.raw() != p.c.raw())
      << "rounded twice: " << Describe(p);
  CHECK_EQ(p.a.elements(), p.m * p.k) << Describe(p);
  CHECK_EQ(p.b.elements(), p.k * p.n) << Describe(p);
  CHECK_EQ(p.c.elements(), p.m * p.n) << Describe(p);
  if (p.c.elements() == 0) return true;
  CHECK_GT(p.k, 0) << Describe(p);
  Plan& plan = PlanOf(p);
  if (plan.algorithms.empty()) return false;
  if (p.bias.defined()) {
    CHECK_EQ(p.bias.elements(), p.n);
    CHECK(p.bias.dtype() == p.c.dtype());
    plan.Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(p.bias.raw()));
  }
  if (p.pre.defined()) {
    CHECK_EQ(p.pre.elements(), p.c.elements());
    CHECK(p.pre.dtype() == p.c.dtype());
    plan.Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(p.pre.raw()));
  }
  if (p.a_sums.defined()) {
    CHECK_EQ(p.a_sums.elements(), p.m);
    CHECK(p.a_sums.dtype() == p.c.dtype());
    plan.Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(p.a_sums.raw()));
  }
  if (plan.calls_to_try > 0) {
    if (!IsRepeatable(p)) {
      AdoptAlgorithm(p, plan);
    } else if (!IsCapturing(context_.stream())) {
      ChooseAlgorithm(allocator, p, plan);
    }
  }
  LS_CUBLASLT(Queue(p, plan, plan.chosen, Workspace(allocator, plan)));
  return true;
}

// Runs candidates on the product's own operands; what they leave in its results, the run behind
// this one replaces.
void MatrixProducts::ChooseAlgorithm(Allocator& allocator, const MatrixProduct& p, Plan& plan) {
  const std::vector<Tensor> results = WrittenBy(p);
  const auto queue = [&](int candidate) {
    return Queue(p, plan, static_cast<size_t>(candidate), Workspace(allocator, plan)) ==
           CUBLAS_STATUS_SUCCESS;
  };
  Trial trial = {.candidates = static_cast<int>(plan.algorithms.size()),
                 .timed_runs = trials_.timed_runs,
                 .queue = queue,
                 .results = results};
  // What AdoptAlgorithm relies on. Once would round nothing: twice the product is exact.
  MatrixProduct in_place = p;
  in_place.addend = p.c;
  if (HasKindInPlace(p)) {
    trial.queue_further = [&](int candidate) {
      for (int i = 0; i < 2; ++i) {
        if (Queue(in_place, plan, static_cast<size_t>(candidate), Workspace(allocator, plan)) !=
            CUBLAS_STATUS_SUCCESS) {
          return false;
        }
      }
      return true;
    };
  }
  const std::optional<int> fastest = FastestWithSameBits(context_, allocator, trial);
  plan.calls_to_try = fastest.has_value() ? 0 : plan.calls_to_try - 1;
  if (!fastest.has_value()) return;
  plan.has_tried = true;
  plan.chosen = static_cast<size_t>(*fastest);
  VLOG(1) << Describe(p) << ": cuBLASLt's candidate " << plan.chosen << " of "
          << plan.algorithms.size();
}

// The descriptions of a product with and without addend are the same, so the heuristic offers the
// same algorithms for both.
void MatrixProducts::AdoptAlgorithm(const MatrixProduct& p, Plan& plan) const {
  const auto found = plans_.find(KeyOf(p, false));
  if (p.addend.raw() != p.c.raw() || found == plans_.end() || !found->second->has_tried) return;
  plan.algorithms = found->second->algorithms;
  plan.workspace_bytes = found->second->workspace_bytes;
  plan.chosen = found->second->chosen;
  plan.calls_to_try = 0;
}

Tensor MatrixProducts::Workspace(Allocator& allocator, const Plan& plan) {
  return Tensor::Empty(allocator, {static_cast<int64_t>(plan.workspace_bytes)}, DType::kU8,
                       MemoryClass::kWorkspace);
}

cublasStatus_t MatrixProducts::Queue(const MatrixProduct& p, const Plan& plan, size_t algorithm,
                                     const Tensor& workspace) {
  const float one = 1, zero = 0;
  const Tensor& addend = p.addend.defined() ? p.addend : p.c;
  const Layouts& own = plan.layouts;
  return cublasLtMatmul(handle_, plan.operation, &one, p.b.raw(), own.a.get(), p.a.raw(),
                        own.b.get(), p.addend.defined() ? &one : &zero, addend.raw(), own.c.get(),
                        p.c.raw(), own.c.get(), &plan.algorithms[algorithm].algo, workspace.raw(),
                        static_cast<size_t>(workspace.bytes()), context_.stream());
}

}  // namespace lockstep::cuda
