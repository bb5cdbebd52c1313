// How translated code (translate.py) starts kernels.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cuda_runtime_api.h"
#include "vector_types.h"

namespace lockstep::emulation {

// What stands between <<< and >>>.
struct Shape {
  // Extents in 64 bits: CUDA cuts off what does not fit its 32, and here that is refused.
  struct Extents {
    int64_t x = 1, y = 1, z = 1;
    Extents(dim3 extents) : x(extents.x), y(extents.y), z(extents.z) {}
    template <typename Integer, typename = std::enable_if_t<std::is_integral_v<Integer>>>
    Extents(Integer x_extent) : x(static_cast<int64_t>(x_extent)) {}
    int64_t count() const { return x * y * z; }
  };

  template <typename Bytes = size_t>
  Shape(Extents blocks, Extents threads, Bytes shared = 0, cudaStream_t of_stream = nullptr)
      : grid(blocks),
        block(threads),
        shared_bytes(static_cast<int64_t>(shared)),
        stream(of_stream) {}

  Extents grid, block;
  int64_t shared_bytes;
  cudaStream_t stream;
};

// One launch: what a thread runs, and where its arguments lie.
struct KernelLaunch {
  const char* name;     // as the source has it
  const void* address;  // of the kernel; null where the compiler chose it among a template's
  Shape shape;
  std::function<void()> run_thread;
  std::shared_ptr<const void> arguments;
  size_t argument_bytes;
};

// Queues the launch. What is wrong with it, cudaGetLastError tells.
void QueueKernel(KernelLaunch launch);

template <typename Kernel>
const void* AddressOf(Kernel* kernel) {
  return reinterpret_cast<const void*>(kernel);
}

template <typename Call, typename... Arguments>
void Launch(const char* name, const void* address, Call call, const Shape& shape,
            const Arguments&... arguments) {
  using Kept = std::tuple<std::decay_t<Arguments>...>;
  auto kept = std::make_shared<const Kept>(arguments...);
  const Kept* const pointer = kept.get();
  QueueKernel({.name = name,
               .address = address,
               .shape = shape,
               .run_thread = [call, pointer] { std::apply(call, *pointer); },
               .arguments = std::move(kept),
               .argument_bytes = sizeof(Kept)});
}

}  // namespace lockstep::emulation
