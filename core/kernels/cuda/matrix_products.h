#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "core/cuda/context.h"
#include "core/kernels/kernels.h"
#include "cublasLt.h"

namespace lockstep::cuda {

// What happens to a product before it is stored.
enum class Epilogue {
  kNone,
  kBias,         // + bias[n]
  kBiasAndGelu,  // + bias[n], which is stored as `pre`; then GELU
  kGeluSlope,    // times GELU's derivative at `pre`
};

// c[m, n] = epilogue(op(a) op(b) + addend), op(a): [m, k], op(b): [k, n], row-major.
struct MatrixProduct {
  int64_t m, n, k;
  Tensor a;
  Transpose transpose_a = Transpose::kNo;
  Tensor b;
  Transpose transpose_b = Transpose::kNo;
  Tensor addend = {};  // [m, n], dtype of c; undefined or not; may be c
  Tensor c;            // in a's dtype, or fp32
  Epilogue epilogue = Epilogue::kNone;
  Tensor bias = {};
  Tensor pre = {};  // [m, n], dtype of c
};

// Matrix products by cuBLASLt, added up in fp32 whatever the operands are stored in, rounded once.
// What it finds out about a product is kept for the next of the same kind.
class MatrixProducts {
 public:
  // The context outlives it.
  MatrixProducts(const CudaContext& context, Fp32Products fp32_products);
  ~MatrixProducts();
  MatrixProducts(const MatrixProducts&) = delete;
  MatrixProducts& operator=(const MatrixProducts&) = delete;

  // Queues the product. Throws StatusException (Unimplemented) where cuBLASLt has no algorithm for
  // it.
  void Run(Allocator& allocator, const MatrixProduct& product);

  // Whether a product of this kind can have GELU as its epilogue: one of 16 bits whose rows all
  // begin at multiples of 16 bytes.
  static bool FusesGelu(DType dtype, int64_t n, int64_t k) {
    return dtype != DType::kF32 && n % 8 == 0 && k % 8 == 0;
  }

 private:
  struct Plan;
  using Key =
      std::tuple<int64_t, int64_t, int64_t, Transpose, Transpose, DType, DType, Epilogue, bool>;

  Plan& PlanOf(const MatrixProduct& product);

  const CudaContext& context_;
  const Fp32Products fp32_products_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace lockstep::cuda
