// Functions that jump into a library opened at run time. Arguments and results stay where the
// caller and the library have them, so no parameter list is needed: a name is enough.

#pragma once

#include "core/cuda/libraries/shared_library.h"
#include "glog/logging.h"

#ifndef __x86_64__
#error "LS_FORWARD knows x86-64's instructions alone"
#endif

namespace lockstep::cuda {

// Where functions lead whose library is not loaded.
[[noreturn]] inline void EndForLackOfLibrary() {
  LOG(FATAL) << "a function of NVIDIA's was called before its library was loaded "
                "(core/cuda/libraries/libraries.h)";
}

}  // namespace lockstep::cuda

// Defines extern "C" `name`, which jumps to the address that the library has for it: written once,
// by OpenLibrary.
#define LS_FORWARD(name)                                                         \
  extern "C" {                                                                   \
  __attribute__((visibility("hidden"), used)) void* lockstep_address_of_##name = \
      reinterpret_cast<void*>(lockstep::cuda::EndForLackOfLibrary);              \
  }                                                                              \
  asm(".pushsection .text; .globl " #name "; .type " #name ", @function; " #name \
      ": jmp *lockstep_address_of_" #name "(%rip); .size " #name ", . - " #name "; .popsection");

// The LibraryFunction of a function that LS_FORWARD defines.
#define LS_FORWARDED(name) lockstep::LibraryFunction{#name, &lockstep_address_of_##name},
