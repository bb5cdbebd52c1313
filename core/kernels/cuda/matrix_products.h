#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "core/cuda/context.h"
#include "core/kernels/kernels.h"
#include "core/kernels/product_shapes.h"
#include "cublasLt.h"

namespace lockstep::cuda {

// What happens to a product before it is stored.
enum class Epilogue {
  kNone,
  kBias,         // + bias[n]
  kBiasAndGelu,  // + bias[n], which is stored as `pre`; then GELU
  kGeluSlope,    // times GELU's derivative at `pre`
  kSumsOfA,      // none; a_sums[m] = the sums of op(a)'s rows beside it
};

// c[m, n] = epilogue(op(a) op(b) + addend), op(a): [m, k], op(b): [k, n], row-major.
struct MatrixProduct {
  int64_t m, n, k;
  Tensor a;
  Transpose transpose_a = Transpose::kNo;
  Tensor b;
  Transpose transpose_b = Transpose::kNo;
  Tensor addend = {};  // [m, n], dtype of c; undefined or not; may be c where that is in fp32
  Tensor c;            // in a's dtype, or fp32
  Epilogue epilogue = Epilogue::kNone;
  Tensor bias = {};
  Tensor pre = {};     // [m, n], dtype of c
  Tensor a_sums = {};  // [m], dtype of c
};

// Which products try what cuBLASLt has for them, and how.
struct ProductTrials {
  // Multiply-adds from which on a product is tried: an H100's tensor cores take some 70 us for
  // them, which events tell from 60. GPT-2's head has 1.3 * 10^12 of them in a micro-batch of
  // 32,768 tokens, its smallest layer 1.9 * 10^10.
  //
  // It also bounds what equal bits can mean. Two orders of a sum of k terms differ by some
  // sqrt(k) * 2^-24 of its value, which shows in bf16 in sqrt(k) * 2^-16 of the elements: among
  // these 2^34 / k, in hundreds.
  int64_t least_multiply_adds = int64_t{1} << 34;
  int candidates = 8;  // the heuristic's own one included
  int timed_runs = 3;
  // How many calls try, where the results of a call tell nothing: those of a first step that
  // overflowed, or of weights that begin as zeros.
  int most_calls = 8;
  // How many shapes of a product are tried that differ in rows, or in the inner dimension, alone.
  // More come of experts, whose rows change with every step: there a trial costs more than it
  // saves. On an H200, steps of a mixture of 8 experts took 310 ms with all shapes tried, and 55 ms
  // where no expert had rows enough for a trial (2026-11-27).
  int most_shapes = 8;
};

// Matrix products by cuBLASLt, added up in fp32 whatever the operands are stored in, rounded once:
// what cuBLASLt would round more often, callers add by kernels of their own. On an H200 cuBLASLt
// 13.1 rounds sums to 16 bits before it adds a bias where rows are not aligned (AddsBiasToSums),
// and before it adds what it replaces (`addend` that is c). An addend that is not c is added to the
// sums. What it finds out about a product is kept for the next of the same kind.
//
// Divided shapes (ProductShapes). An element has the bits that its row and its column give it,
// whatever other rows and columns the call has. cuBLASLt's heuristic chooses an algorithm by the
// shape, and another algorithm may add up in another order. So products of all shapes take the
// algorithm that it has for results of 1024 x 1024 and sums in one piece: one for each inner
// dimension, dtypes, transposes, epilogue and alignment of rows. That an algorithm has one order
// for all shapes is not documented; PartsOfProductsTest (cuda_kernels_test.cc) tries it. Where it
// does not serve, as where a result has one column (n = 1), the heuristic's own for the shape does,
// and the log says so once.
//
// Candidates. cuBLASLt's heuristic estimates which of its algorithms is the fastest. The first call
// of a large product (ProductTrials), in each of its first shapes, times some of them on its own
// operands, on the rank's stream, and keeps the fastest of those whose result has the very bits of
// the first, which is the one for all shapes where these are divided: core/kernels/cuda/trials.h.
// Whichever is kept, results are those of the first. Only these take part:
// - products that no stream captures, and that read nothing of what they write: a product added to
//   its own addend in place would be added several times. One in place takes what the same product
//   chose with an addend that it does not write, or without one: a candidate for that also has the
//   first one's bits after two more products are added in place. Else it takes the first;
// - algorithms that are deterministic and round once. cuBLASLt documents one sum over the inner
//   dimension (CUBLASLT_REDUCTION_SCHEME_NONE), or parts of it ("split-K") that are kept in fp32 in
//   the workspace and added by a separate step (COMPUTE_TYPE). Left out are parts that are added in
//   the result itself (INPLACE: counters make them come one at a time, in no order that is
//   documented), and parts that are kept in the result's type (OUTPUT_TYPE: 16 bits are rounded
//   more than once). CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK says so to the heuristic;
// - algorithms that need no more workspace than the one for all shapes, or the heuristic's first
// for
//   this one: what a product books does not depend on what is kept.
//
// Sums beside a product (kSumsOfA). cuBLASLt chooses their order, as it does for the product. By
// the contract (docs/numerics.md, "Kernels") the sums over rows of a bias's gradient have an order
// that no number of columns changes, and a library's may: a rank that holds some columns of a split
// layer would have other bits than one that holds all. So callers may use them only where nothing
// divides products (ProductShapes::kSame), and for 16-bit operands: our own sums are in double,
// which fp32 deserves.
class MatrixProducts {
 public:
  // The context outlives it.
  MatrixProducts(const CudaContext& context, Fp32Products fp32_products, ProductShapes shapes,
                 const ProductTrials& trials = {});
  ~MatrixProducts();
  MatrixProducts(const MatrixProducts&) = delete;
  MatrixProducts& operator=(const MatrixProducts&) = delete;

  // Queues the product. Throws StatusException (Unimplemented) where cuBLASLt has no algorithm for
  // it.
  void Run(Allocator& allocator, const MatrixProduct& product);
  // Queues the product, or returns false where cuBLASLt has no algorithm for it, which costs
  // nothing from the second call on.
  [[nodiscard]] bool TryRun(Allocator& allocator, const MatrixProduct& product);

  // Whether a product of this kind can have GELU as its epilogue: one of 16 bits whose rows all
  // begin at multiples of 16 bytes.
  static bool FusesGelu(DType dtype, int64_t n, int64_t k) {
    return dtype != DType::kF32 && n % 8 == 0 && k % 8 == 0;
  }
  // Whether a bias is added to the sums of such a product before they are rounded. Where rows of 16
  // bits begin at other addresses, cuBLASLt 13.1 rounds them first, and a kernel behind the product
  // adds the bias to what was rounded (seen on an H200, 2026-11-27).
  static bool AddsBiasToSums(DType dtype, int64_t n, int64_t k) {
    return dtype == DType::kF32 || FusesGelu(dtype, n, k);
  }
  // Whether a product c[m, n] may be asked for sums beside it, by the same rule.
  static bool MaySumA(DType dtype, int64_t m, int64_t n) { return FusesGelu(dtype, n, m); }

 private:
  struct Plan;
  using Key =
      std::tuple<int64_t, int64_t, int64_t, Transpose, Transpose, DType, DType, Epilogue, bool>;

  static Key KeyOf(const MatrixProduct& product, bool has_addend);
  Plan& PlanOf(const MatrixProduct& product);
  // Whether a new shape may be tried, of a large product: whether no more than most_shapes have
  // come that differ from it in m, or in k, alone. Counts it.
  bool MayTryShape(const MatrixProduct& product);
  // Adds the algorithm that the product has whatever its rows and columns.
  void AddAlgorithmForAllShapes(const MatrixProduct& product, Plan& plan);
  // Adds those that cuBLASLt offers for its shape: if it may be tried, or has no other.
  void AddAlgorithmsOfShape(const MatrixProduct& product, Plan& plan);
  void AdoptAlgorithm(const MatrixProduct& product, Plan& plan) const;
  void ChooseAlgorithm(Allocator& allocator, const MatrixProduct& product, Plan& plan);
  static Tensor Workspace(Allocator& allocator, const Plan& plan);
  cublasStatus_t Queue(const MatrixProduct& product, const Plan& plan, size_t algorithm,
                       const Tensor& workspace);

  const CudaContext& context_;
  const Fp32Products fp32_products_;
  const ProductShapes shapes_;
  const ProductTrials trials_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, std::unique_ptr<Plan>> plans_;
  // The shapes of each kind so far; the key of a kind has 0 for what differs.
  std::map<Key, int> shapes_of_kind_;
  bool has_told_ = false;
};

}  // namespace lockstep::cuda
