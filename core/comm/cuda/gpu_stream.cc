#include "core/comm/cuda/gpu_stream.h"

#include <cstddef>
#include <memory>

#include "core/comm/cuda/movement_kernels.h"
#include "core/cuda/error.h"
#include "glog/logging.h"

namespace lockstep::cuda {
namespace {

// The GPU whose memory the address is in.
int OrdinalOf(const void* address) {
  cudaPointerAttributes attributes = {};
  LS_CUDA(cudaPointerGetAttributes(&attributes, address));
  return attributes.device;
}

}  // namespace

GpuMark::GpuMark(cudaStream_t stream) {
  LS_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
  const cudaError_t error = cudaEventRecord(event_, stream);
  if (error == cudaSuccess) return;
  static_cast<void>(cudaEventDestroy(event_));
  LS_CUDA(error);
}

GpuMark::~GpuMark() { LogError(cudaEventDestroy(event_), "cudaEventDestroy"); }

void GpuMark::HoldBack(cudaStream_t stream) const {
  LS_CUDA(cudaStreamWaitEvent(stream, event_, 0));
}

bool GpuMark::IsReached() const {
  const cudaError_t error = cudaEventQuery(event_);
  if (error == cudaErrorNotReady) return false;
  LS_CUDA(error);
  return true;
}

GpuStream::GpuStream(int ordinal) : ordinal_(ordinal) {
  MakeCurrent();
  int least = 0, greatest = 0;
  LS_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  LS_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
}

GpuStream::~GpuStream() {
  for (const cudaError_t error :
       {cudaSetDevice(ordinal_), cudaStreamSynchronize(stream_), cudaStreamDestroy(stream_)}) {
    if (error != cudaSuccess) LOG(ERROR) << "cuda:" << ordinal_ << ": " << cudaGetErrorName(error);
  }
}

void GpuStream::MakeCurrent() const { LS_CUDA(cudaSetDevice(ordinal_)); }

void GpuStream::Await(const DeviceMark& mark) {
  MakeCurrent();
  static_cast<const GpuMark&>(mark).HoldBack(stream_);
}

DeviceMarkPtr GpuStream::Mark() {
  MakeCurrent();
  return std::make_shared<const GpuMark>(stream_);
}

void GpuStream::Copy(std::byte* to, const std::byte* from, int64_t bytes) {
  MakeCurrent();
  const int target = OrdinalOf(to), source = OrdinalOf(from);
  const auto size = static_cast<size_t>(bytes);
  if (target == source) {
    LS_CUDA(cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToDevice, stream_));
  } else {
    // Blocks come from pools (core/cuda/allocator.h), which give other GPUs no access: a plain copy
    // runs on one GPU and would need it.
    LS_CUDA(cudaMemcpyPeerAsync(to, target, from, source, size, stream_));
  }
}

void GpuStream::Reduce(DType dtype, ReduceOp op, absl::Span<const std::byte* const> inputs,
                       absl::Span<std::byte* const> outputs, int64_t begin, int64_t end) {
  CHECK_LE(inputs.size(), static_cast<size_t>(kMostMembers));
  CHECK_LE(outputs.size(), static_cast<size_t>(kMostMembers));
  MakeCurrent();
  const int64_t offset = begin * SizeOf(dtype);
  ReduceMembers members = {};
  for (const std::byte* input : inputs) members.inputs[members.input_count++] = input + offset;
  for (std::byte* output : outputs) members.outputs[members.output_count++] = output + offset;
  LS_CUDA(ReduceByTree(stream_, dtype, op, members, end - begin));
}

void GpuStream::Swap(std::byte* one, std::byte* other, int64_t bytes) {
  MakeCurrent();
  LS_CUDA(SwapBytes(stream_, one, other, bytes));
}

}  // namespace lockstep::cuda
