#include "core/cuda/emulation/fiber.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

#include "glog/logging.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#ifndef __x86_64__
#error "emulated GPUs switch stacks in x86-64 assembly"
#endif

// Saves the registers that a called function keeps on the running stack, whose pointer goes to
// *from, and goes on where `to` was saved so.
extern "C" void LockstepSwitchStack(void** from, void* to);
asm(R"(
.text
.type LockstepSwitchStack, @function
LockstepSwitchStack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size LockstepSwitchStack, .-LockstepSwitchStack

.type LockstepEnterFiber, @function
LockstepEnterFiber:
  movq %rbx, %rdi
  call *%rbp
  ud2
.size LockstepEnterFiber, .-LockstepEnterFiber
)");
extern "C" void LockstepEnterFiber();

namespace lockstep::emulation {
namespace {

#ifdef __SANITIZE_ADDRESS__
void StartSwitch(void** save, const void* stack, size_t bytes) {
  __sanitizer_start_switch_fiber(save, stack, bytes);
}
void FinishSwitch(void* saved, const void** from, size_t* bytes) {
  __sanitizer_finish_switch_fiber(saved, from, bytes);
}
// A fiber that nobody resumed has frames left, whose variables are still marked.
void Unmark(const void* stack, size_t bytes) { ASAN_UNPOISON_MEMORY_REGION(stack, bytes); }
#else
void StartSwitch(void**, const void*, size_t) {}
void FinishSwitch(void*, const void**, size_t*) {}
void Unmark(const void*, size_t) {}
#endif

constexpr size_t kGuardBytes = 4096;

// Where the next fiber's stack begins in its page. Stacks lie whole pages apart: frames at one
// place in the page would share few of the cache's lines, and 32 lanes of a warp throw each other
// out.
size_t NextOffset() {
  constexpr size_t kLine = 64, kStep = 5 * kLine, kPage = 4096;
  static std::atomic<size_t> fibers = 0;
  return fibers++ * kStep % kPage;
}

}  // namespace

Fiber::Fiber() {
  void* const memory = mmap(nullptr, kStackBytes + kGuardBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  PCHECK(memory != MAP_FAILED);
  PCHECK(mprotect(memory, kGuardBytes, PROT_NONE) == 0);
  stack_ = static_cast<char*>(memory) + kGuardBytes;
  offset_ = NextOffset();
}

Fiber::~Fiber() { munmap(stack_ - kGuardBytes, kStackBytes + kGuardBytes); }

void Fiber::Start(void (*function)(void*), void* argument) {
  function_ = function;
  argument_ = argument;
  is_over_ = false;
  fake_stack_ = nullptr;
  Unmark(stack_, kStackBytes);
  // What LockstepSwitchStack pops, and the address that it returns to; 16 bytes aligned before the
  // call that LockstepEnterFiber makes.
  auto* top = reinterpret_cast<void**>(stack_ + kStackBytes - offset_) - 2;
  *--top = reinterpret_cast<void*>(&LockstepEnterFiber);
  *--top = reinterpret_cast<void*>(&Fiber::Enter);  // rbp
  *--top = this;                                    // rbx
  for (int i = 0; i < 4; ++i) *--top = nullptr;     // r12 to r15
  own_ = top;
}

void Fiber::Resume() {
  void* fake_stack = nullptr;
  StartSwitch(&fake_stack, stack_, kStackBytes);
  LockstepSwitchStack(&resumer_, own_);
  FinishSwitch(fake_stack, nullptr, nullptr);
}

void Fiber::Yield() {
  StartSwitch(is_over_ ? nullptr : &fake_stack_, resumer_stack_, resumer_stack_bytes_);
  LockstepSwitchStack(&own_, resumer_);
  FinishSwitch(fake_stack_, nullptr, nullptr);
}

void Fiber::YieldTo(Fiber& next) {
  next.resumer_ = resumer_;
  StartSwitch(&fake_stack_, next.stack_, kStackBytes);
  LockstepSwitchStack(&own_, next.own_);
  FinishSwitch(fake_stack_, nullptr, nullptr);
}

void Fiber::Enter(Fiber* fiber) {
  FinishSwitch(nullptr, &fiber->resumer_stack_, &fiber->resumer_stack_bytes_);
  fiber->function_(fiber->argument_);
  fiber->is_over_ = true;
  fiber->Yield();
  std::abort();  // nobody resumes what is over
}

}  // namespace lockstep::emulation
