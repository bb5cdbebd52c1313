// Streams and events of emulated GPUs. What a call refuses is what its documentation refuses, the
// programming guide's "Stream and Event Behavior" included.

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/cuda/emulation/handles.h"
#include "core/cuda/emulation/machine.h"
#include "core/cuda/emulation/runtime.h"

namespace lockstep::emulation {
void QueueOn(cudaStream_t stream, Operation operation) {
  Machine::Get().Queue(stream->stream, std::move(operation));
}

cudaError_t QueueRuntime(cudaStream_t stream, Operation operation) {
  if (stream == nullptr) {
    return Refuse(cudaErrorInvalidResourceHandle,
                  absl::StrCat(operation.name, ": the default stream is not emulated"));
  }
  Machine::Get().Queue(stream->stream, std::move(operation));
  return DeviceError();
}

}  // namespace lockstep::emulation

using lockstep::emulation::CurrentDevice;
using lockstep::emulation::DeviceError;
using lockstep::emulation::Machine;
using lockstep::emulation::QueueOn;
using lockstep::emulation::QueueRuntime;
using lockstep::emulation::Refuse;
using lockstep::emulation::Result;

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int /*priority*/) {
  if (flags != cudaStreamNonBlocking) {
    return Refuse(cudaErrorInvalidValue, "streams that wait for the default stream: not emulated");
  }
  LS_RETURN_IF_DEVICE_FAILED();
  *stream = new CUstream_st{Machine::Get().NewStream(CurrentDevice())};
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Machine::Get().Forget(stream->stream);
  delete stream;
  return DeviceError();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Machine::Get().Await(Machine::Get().MarkOf(stream->stream));
  return Result(Machine::Get().error(stream->stream->device));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return QueueRuntime(stream, {.name = "cudaStreamWaitEvent",
                               .run = [] { return std::nullopt; },
                               .is_ready = [mark = event->mark] { return mark.IsReached(); }});
}

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  LS_RETURN_IF_DEVICE_FAILED();
  *status = cudaStreamCaptureStatusNone;  // graphs are not emulated
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  LS_RETURN_IF_DEVICE_FAILED();
  *event =
      new CUevent_st{.device = CurrentDevice(), .has_time = (flags & cudaEventDisableTiming) == 0};
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (stream == nullptr || stream->stream->device != event->device) {
    return Refuse(cudaErrorInvalidResourceHandle,
                  absl::StrCat("cudaEventRecord: an event of GPU ", event->device,
                               " on a stream of another"));
  }
  if (event->has_time) {
    event->nanos = std::make_shared<uint64_t>(0);
    QueueOn(stream,
            {.name = "cudaEventRecord", .run = [of_stream = stream->stream, nanos = event->nanos] {
               *nanos = of_stream->nanos;
               return std::nullopt;
             }});
  }
  event->mark = Machine::Get().MarkOf(stream->stream);
  return DeviceError();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Machine::Get().Await(event->mark);
  return Result(Machine::Get().error(event->device));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t failed = Machine::Get().error(event->device); failed != cudaSuccess) {
    return Result(failed);
  }
  return Machine::Get().Poll(event->mark) ? Result(Machine::Get().error(event->device))
                                          : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  constexpr double kNanosOfMillisecond = 1e6;
  if (start->nanos == nullptr || end->nanos == nullptr || start->device != end->device) {
    return Refuse(cudaErrorInvalidResourceHandle,
                  "cudaEventElapsedTime: events that were not recorded, were made with "
                  "cudaEventDisableTiming, or are of two GPUs");
  }
  if (!Machine::Get().Poll(start->mark) || !Machine::Get().Poll(end->mark))
    return cudaErrorNotReady;
  const auto nanos = static_cast<double>(*end->nanos) - static_cast<double>(*start->nanos);
  *milliseconds = static_cast<float>(nanos / kNanosOfMillisecond);
  return Result(Machine::Get().error(start->device));
}
