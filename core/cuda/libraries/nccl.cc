// What the backend calls of NCCL. A function that is missing here shows when programs are linked.

#include <nccl.h>

#include "core/cuda/libraries/forwarded.h"
#include "core/cuda/libraries/libraries.h"

#define LS_NCCL_FUNCTIONS(F) \
  F(ncclAllGather)           \
  F(ncclAllReduce)           \
  F(ncclBroadcast)           \
  F(ncclCommAbort)           \
  F(ncclCommDestroy)         \
  F(ncclCommFinalize)        \
  F(ncclCommGetAsyncError)   \
  F(ncclCommInitRankConfig)  \
  F(ncclGetErrorString)      \
  F(ncclGetLastError)        \
  F(ncclGetUniqueId)         \
  F(ncclGetVersion)          \
  F(ncclGroupEnd)            \
  F(ncclGroupStart)          \
  F(ncclRecv)                \
  F(ncclReduce)              \
  F(ncclReduceScatter)       \
  F(ncclSend)

LS_NCCL_FUNCTIONS(LS_FORWARD)

namespace lockstep::cuda {

absl::Status LoadNccl() {
  static_assert(NCCL_MAJOR == 2, "the library's name below has the version of its header");
  static const absl::Status& status =
      *new absl::Status(OpenLibrary("libnccl.so.2", "NCCL 2", {LS_NCCL_FUNCTIONS(LS_FORWARDED)}));
  return status;
}

}  // namespace lockstep::cuda
