// What the backend calls of cuBLASLt. A function that is missing here shows when programs are
// linked.

#include <cublasLt.h>

#include "core/cuda/libraries/forwarded.h"
#include "core/cuda/libraries/libraries.h"

#define LS_CUBLASLT_FUNCTIONS(F)          \
  F(cublasLtCreate)                       \
  F(cublasLtDestroy)                      \
  F(cublasLtGetStatusString)              \
  F(cublasLtGetVersion)                   \
  F(cublasLtMatmul)                       \
  F(cublasLtMatmulAlgoCheck)              \
  F(cublasLtMatmulAlgoGetHeuristic)       \
  F(cublasLtMatmulDescCreate)             \
  F(cublasLtMatmulDescDestroy)            \
  F(cublasLtMatmulDescSetAttribute)       \
  F(cublasLtMatmulPreferenceCreate)       \
  F(cublasLtMatmulPreferenceDestroy)      \
  F(cublasLtMatmulPreferenceSetAttribute) \
  F(cublasLtMatrixLayoutCreate)           \
  F(cublasLtMatrixLayoutDestroy)

LS_CUBLASLT_FUNCTIONS(LS_FORWARD)

namespace lockstep::cuda {

absl::Status LoadCublasLt() {
  static_assert(CUBLAS_VER_MAJOR == 13, "the library's name below has the version of its header");
  static const absl::Status& status = *new absl::Status(OpenLibrary(
      "libcublasLt.so.13", "CUDA 13 with cuBLAS", {LS_CUBLASLT_FUNCTIONS(LS_FORWARDED)}));
  return status;
}

}  // namespace lockstep::cuda
