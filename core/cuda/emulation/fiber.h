#pragma once

#include <cstddef>

namespace lockstep::emulation {

// A flow of control with a stack of its own, on which a thread of a GPU runs. It runs until it
// yields, and goes on from there when it is resumed, always from the same thread of the host and
// outside of fibers. A fiber that is destroyed amid its function is dropped: nothing on its stack
// is destroyed.
class Fiber {
 public:
  static constexpr size_t kStackBytes = 256 << 10;

  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Begins anew, with function(argument), at the next Resume.
  void Start(void (*function)(void*), void* argument);
  // Runs until it, or a fiber that it has given way to, yields or returns from its function.
  void Resume();
  // Called on the fiber: goes back to who resumed it.
  void Yield();
  // Called on the fiber: switches straight to `next`, which must have yielded, and which then goes
  // back to who resumed this fiber. This takes one switch instead of two, and the processor
  // predicts the returns behind it where both fibers stopped at the same place.
  void YieldTo(Fiber& next);

  const char* stack() const { return stack_; }

 private:
  static void Enter(Fiber* fiber);

  char* stack_;
  size_t offset_;            // bytes at the stack's top that are left unused
  void* own_ = nullptr;      // stack pointer while it does not run
  void* resumer_ = nullptr;  // stack pointer of who resumed it
  void (*function_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool is_over_ = true;
  // For AddressSanitizer, which wants to know of stacks.
  void* fake_stack_ = nullptr;
  const void* resumer_stack_ = nullptr;
  size_t resumer_stack_bytes_ = 0;
};

}  // namespace lockstep::emulation
