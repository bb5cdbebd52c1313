// NCCL on emulated GPUs, among the threads of one process. Each call is work of its stream that
// begins when all ranks have come to it on theirs, so that ranks which make calls in different
// orders wait for ever, as they would. What ranks say of a call must agree.

#include "nccl.h"

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/cuda/emulation/handles.h"
#include "core/cuda/emulation/nccl_group.h"
#include "core/cuda/emulation/nccl_occupancy.h"
#include "glog/logging.h"

using lockstep::emulation::Fault;
using lockstep::emulation::Machine;
using lockstep::emulation::NcclCall;
using lockstep::emulation::NcclGroup;
using lockstep::emulation::NcclOccupancy;
using lockstep::emulation::NcclOperation;
using lockstep::emulation::NcclTransfer;

struct ncclComm {
  std::shared_ptr<NcclGroup> group;
  int rank;
  int device;
  bool is_blocking;
  ncclResult_t error = ncclSuccess;
};

namespace lockstep::emulation {
namespace {

// Communicators that ranks join, by their names.
using Groups = std::map<std::string, std::weak_ptr<NcclGroup>>;

Groups& TheGroups() {
  static Groups& groups = *new Groups;
  return groups;
}

std::string NameOf(const ncclUniqueId& id) { return {id.internal, sizeof(id.internal)}; }

ncclResult_t RefuseCall(ncclResult_t result, const std::string& why) {
  LOG(ERROR) << "emulated NCCL: " << why;
  return result;
}

// Calls that the thread makes as one, between ncclGroupStart and ncclGroupEnd.
struct PendingCall {
  ncclComm_t comm;
  cudaStream_t stream;
  NcclCall call;
};
thread_local std::vector<PendingCall> pending;
thread_local int depth = 0;

// One rank's part in several transfers, as work of a stream.
class Kernel {
 public:
  Kernel(std::shared_ptr<NcclGroup> group, int device,
         std::vector<std::shared_ptr<NcclTransfer>> transfers)
      : group_(std::move(group)),
        kernel_(std::make_shared<const NcclOccupancy::Kernel>(group_.get(), device,
                                                              std::move(transfers))) {}

  // Under the machine's lock, when the stream has come here.
  bool IsReady() {
    if (group_->is_aborted()) return true;
    if (!has_begun_) {
      switch (NcclOccupancy::Get().Enter(kernel_)) {
        case NcclOccupancy::Entry::kNoRoom:
          return false;
        case NcclOccupancy::Entry::kDeadlock:
          is_deadlocked_ = true;
          return true;
        case NcclOccupancy::Entry::kBegun:
          break;
      }
      has_begun_ = true;
      for (const auto& transfer : kernel_->transfers) ++transfer->arrived;
    }
    for (const auto& transfer : kernel_->transfers) {
      if (transfer->arrived < transfer->expected) return false;
    }
    return true;
  }

  std::optional<Fault> Run() {
    std::optional<Fault> fault;
    Machine::Get().Change([&] {
      NcclOccupancy::Get().Leave(kernel_);
      if (group_->is_aborted()) return;
      if (is_deadlocked_) {
        fault = {cudaErrorLaunchTimeout,
                 absl::StrCat("GPU ", kernel_->device,
                              ": kernels of several NCCL communicators begin in different orders "
                              "on the GPUs, and wait for each other")};
        return;
      }
      for (const auto& transfer : kernel_->transfers) {
        if (transfer->is_done || fault.has_value()) continue;
        fault = RunTransfer(*group_, *transfer);
        transfer->is_done = true;
      }
    });
    return fault;
  }

 private:
  const std::shared_ptr<NcclGroup> group_;
  const NcclOccupancy::KernelPtr kernel_;
  bool has_begun_ = false, is_deadlocked_ = false;
};

ncclResult_t JudgeCall(const PendingCall& pending_call) {
  const auto& [comm, stream, call] = pending_call;
  if (call.peer < 0 || call.peer >= comm->group->ranks()) {
    return RefuseCall(ncclInvalidArgument, call.ToString() + ": there is no such rank");
  }
  if (stream == nullptr || stream->stream->device != comm->device) {
    return RefuseCall(ncclInvalidUsage,
                      absl::StrCat(call.ToString(), ": the stream is not one of GPU ", comm->device,
                                   ", which is the communicator's"));
  }
  if (CurrentDevice() != comm->device) {
    return RefuseCall(
        ncclInvalidUsage,
        absl::StrCat(call.ToString(), ": the calling thread's GPU is ", CurrentDevice(),
                     ", the communicator's ", comm->device, " (cudaSetDevice)"));
  }
  return ncclSuccess;
}

// Queues calls of one communicator on one stream.
ncclResult_t QueueCalls(ncclComm_t comm, cudaStream_t stream, const std::vector<NcclCall>& calls) {
  std::vector<std::shared_ptr<NcclTransfer>> transfers;
  std::string problem;
  Machine::Get().Change([&] {
    for (const NcclCall& call : calls) {
      if (problem.empty()) transfers.push_back(comm->group->Add(comm->rank, call, &problem));
    }
  });
  if (!problem.empty()) {
    comm->error = RefuseCall(ncclInvalidUsage, problem);
    return comm->error;
  }
  const auto kernel = std::make_shared<Kernel>(comm->group, comm->device, std::move(transfers));
  QueueOn(stream, {.name = calls.front().ToString(),
                   .run = [kernel] { return kernel->Run(); },
                   .is_ready = [kernel] { return kernel->IsReady(); }});
  return ncclSuccess;
}

ncclResult_t QueuePending() {
  const std::vector<PendingCall> calls = std::exchange(pending, {});
  for (const PendingCall& call : calls) {
    if (const ncclResult_t result = JudgeCall(call)) return result;
  }
  std::map<std::pair<ncclComm_t, cudaStream_t>, std::vector<NcclCall>> together;
  for (const PendingCall& call : calls) together[{call.comm, call.stream}].push_back(call.call);
  for (const auto& [where, of_stream] : together) {
    if (const ncclResult_t result = QueueCalls(where.first, where.second, of_stream)) return result;
  }
  return ncclSuccess;
}

ncclResult_t Call(ncclComm_t comm, cudaStream_t stream, const NcclCall& call) {
  pending.push_back({comm, stream, call});
  return depth > 0 ? ncclSuccess : QueuePending();
}

}  // namespace
}  // namespace lockstep::emulation

using lockstep::emulation::Call;
using lockstep::emulation::depth;
using lockstep::emulation::RefuseCall;

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclInProgress:
      return "NCCL operation in progress";
  }
  return "an error that NCCL does not have";
}

const char* ncclGetLastError(ncclComm_t) { return "the log says why"; }

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<uint64_t> ids = 0;
  const uint64_t number = ++ids;
  *id = {};
  std::memcpy(id->internal, &number, sizeof(number));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (ranks < 1 || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  const int device = lockstep::emulation::CurrentDevice();
  std::string problem;
  Machine::Get().Change([&] {
    auto& known = lockstep::emulation::TheGroups()[lockstep::emulation::NameOf(id)];
    std::shared_ptr<NcclGroup> group = known.lock();
    if (group == nullptr) known = group = std::make_shared<NcclGroup>(ranks);
    for (int other = 0; other < group->ranks(); ++other) {
      if (group->device(other) != device) continue;
      problem = absl::StrCat("ranks ", other, " and ", rank, " have GPU ", device, " both");
    }
    if (NcclOccupancy::Get().Spins(device)) {
      problem = absl::StrCat("a communicator is made while a kernel of NCCL waits on GPU ", device);
    }
    if (group->ranks() != ranks) problem = "ranks that name different sizes of a communicator";
    if (problem.empty() && !group->Join(rank, device)) problem = "a rank that joins twice";
    *comm = new ncclComm{
        .group = group, .rank = rank, .device = device, .is_blocking = config->blocking != 0};
  });
  if (!problem.empty()) return RefuseCall(ncclInvalidUsage, problem);
  if (!(*comm)->is_blocking) return ncclInProgress;
  return RefuseCall(ncclInvalidUsage, "blocking communicators are not emulated");
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  Machine::Get().Change([&] {
    *state = comm->error;
    if (comm->error == ncclSuccess && !comm->group->IsComplete()) *state = ncclInProgress;
  });
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  Machine::Get().AwaitDevice(comm->device);
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  Machine::Get().Change([&] { comm->group->Abort(); });
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (depth == 0) return RefuseCall(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  return --depth > 0 ? ncclSuccess : lockstep::emulation::QueuePending();
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return Call(comm, stream, {NcclOperation::kAllReduce, send, receive, count, type, op});
}

ncclResult_t ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return Call(comm, stream, {NcclOperation::kReduce, send, receive, count, type, op, root});
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return Call(comm, stream, {NcclOperation::kBroadcast, send, receive, count, type, ncclSum, root});
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return Call(comm, stream, {NcclOperation::kReduceScatter, send, receive, count, type, op});
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return Call(comm, stream, {NcclOperation::kAllGather, send, receive, count, type});
}

ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return Call(comm, stream, {NcclOperation::kSend, send, nullptr, count, type, ncclSum, peer});
}

ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return Call(comm, stream, {NcclOperation::kRecv, nullptr, receive, count, type, ncclSum, peer});
}
