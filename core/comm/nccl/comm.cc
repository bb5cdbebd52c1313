#include "core/comm/nccl/comm.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/cuda/libraries/libraries.h"
#include "glog/logging.h"

namespace lockstep::nccl {
namespace {

// NCCL works in threads of its own; this often they are looked at.
constexpr std::chrono::microseconds kLook(20);

}  // namespace

absl::StatusOr<ncclUniqueId> Comm::NewId() {
  LS_RETURN_IF_ERROR(cuda::LoadNccl());
  ncclUniqueId id;
  const ncclResult_t result = ncclGetUniqueId(&id);
  if (result == ncclSuccess) return id;
  return absl::UnavailableError(absl::StrCat("NCCL: ncclGetUniqueId: ", ncclGetErrorString(result),
                                             ": ", ncclGetLastError(nullptr),
                                             "; NCCL_DEBUG=INFO says more"));
}

absl::StatusOr<std::shared_ptr<Comm>> Comm::Create(const ncclUniqueId& id, int size, int rank,
                                                   int most_ctas, Patience patience) {
  LS_RETURN_IF_ERROR(cuda::LoadNccl());
  const std::shared_ptr<Comm> comm(new Comm(std::move(patience)));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.maxCTAs = most_ctas;
  const ncclResult_t result = ncclCommInitRankConfig(&comm->comm_, size, id, rank, &config);
  Lock lock(comm->mutex_);
  if (result != ncclSuccess && result != ncclInProgress) {
    // The other ranks' part would not mend it.
    absl::Status refused = comm->StatusOf(result, "ncclCommInitRankConfig");
    comm->AbortLocked();
    return refused;
  }
  LS_RETURN_IF_ERROR(comm->AwaitBackground("ncclCommInitRankConfig"));
  return comm;
}

Comm::~Comm() {
  if (comm_ == nullptr) return;
  if (!patience_.world_status().ok()) {
    AbortLocked();
    return;
  }
  ncclResult_t result = ncclCommFinalize(comm_);
  if (result == ncclInProgress && AwaitBackground("ncclCommFinalize").ok()) result = ncclSuccess;
  if (comm_ == nullptr) return;
  if (result == ncclSuccess) result = ncclCommDestroy(comm_);
  if (result != ncclSuccess) LOG(ERROR) << "NCCL: " << ncclGetErrorString(result);
}

void Comm::Queue(const std::function<ncclResult_t(ncclComm_t)>& queue) {
  Lock lock(mutex_);
  if (comm_ == nullptr) {
    const absl::Status status = patience_.world_status();
    throw StatusException(status.ok() ? absl::AbortedError("NCCL: was aborted") : status);
  }
  const ncclResult_t result = queue(comm_);
  if (result == ncclSuccess) return;
  absl::Status status =
      result == ncclInProgress ? AwaitBackground("queueing a call") : StatusOf(result, "a call");
  ThrowIfError(status);
}

absl::Status Comm::Check() {
  const Lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || comm_ == nullptr) return absl::OkStatus();
  ncclResult_t state = ncclSuccess;
  const ncclResult_t result = ncclCommGetAsyncError(comm_, &state);
  if (result != ncclSuccess) return StatusOf(result, "ncclCommGetAsyncError");
  return state == ncclInProgress ? absl::OkStatus() : StatusOf(state, "on its way");
}

void Comm::Abort() {
  const Lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) AbortLocked();
}

absl::Status Comm::AwaitBackground(const char* call) {
  const auto deadline = std::chrono::steady_clock::now() + patience_.timeout;
  for (;;) {
    if (comm_ == nullptr) return absl::AbortedError(absl::StrCat("NCCL: ", call, " was aborted"));
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = ncclCommGetAsyncError(comm_, &state);
    if (result != ncclSuccess) state = result;
    if (state == ncclSuccess) return absl::OkStatus();
    absl::Status status;
    if (state != ncclInProgress) {
      status = StatusOf(state, call);
    } else if (absl::Status failed = patience_.world_status(); !failed.ok()) {
      status = std::move(failed);
    } else if (std::chrono::steady_clock::now() >= deadline) {
      const double seconds = std::chrono::duration<double>(patience_.timeout).count();
      status = absl::DeadlineExceededError(
          absl::StrCat("no answer within ", FormatDuration(seconds), ": NCCL did not end ", call,
                       "; NCCL_DEBUG=INFO says more"));
    }
    if (!status.ok()) {
      AbortLocked();
      return status;
    }
    std::this_thread::sleep_for(kLook);
  }
}

absl::Status Comm::StatusOf(ncclResult_t result, const char* call) const {
  if (result == ncclSuccess) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("NCCL: ", call, ": ", ncclGetErrorString(result), ": ",
                                             ncclGetLastError(comm_),
                                             "; NCCL_DEBUG=INFO says more"));
}

void Comm::AbortLocked() {
  if (comm_ == nullptr) return;
  const ncclResult_t result = ncclCommAbort(std::exchange(comm_, nullptr));
  if (result != ncclSuccess && result != ncclInProgress) {
    LOG(ERROR) << "NCCL: ncclCommAbort: " << ncclGetErrorString(result);
  }
}

}  // namespace lockstep::nccl
