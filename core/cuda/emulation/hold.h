// Streams that stand still, for tests of what the host and other streams do meanwhile.

#pragma once

#include <memory>
#include <optional>

#include "core/cuda/emulation/handles.h"
#include "cuda_runtime_api.h"

namespace lockstep::emulation {

// Holds a stream: what is queued behind the construction waits for Release, or the end of this.
class Hold {
 public:
  explicit Hold(cudaStream_t stream) {
    QueueOn(stream, {.name = "hold",
                     .run = [] { return std::optional<Fault>(); },
                     .is_ready = [is_held = is_held_] { return !*is_held; }});
  }
  ~Hold() { Release(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  void Release() {
    Machine::Get().Change([this] { *is_held_ = false; });
  }

 private:
  const std::shared_ptr<bool> is_held_ = std::make_shared<bool>(true);
};

// Whether the GPU comes to the end of what is queued on the stream now, as long as nobody waits for
// it: not where the stream is held, or waits for one that is.
inline bool ComesToItsEnd(cudaStream_t stream) {
  const Mark end = Machine::Get().MarkOf(stream->stream);
  constexpr int kEnough = 1000;
  for (int i = 0; i < kEnough; ++i) {
    if (Machine::Get().Poll(end)) return true;
  }
  return false;
}

}  // namespace lockstep::emulation
