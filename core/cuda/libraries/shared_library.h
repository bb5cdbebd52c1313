// Shared libraries that a program opens when it first needs them, so that it starts on machines
// that lack them.

#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace lockstep {

// A function of a shared library, and where its address goes.
struct LibraryFunction {
  const char* name;
  void** address;
};

// Opens a library for as long as the process lives, as the system's loader finds it (ldconfig,
// LD_LIBRARY_PATH), and fills in the functions' addresses. Unavailable, with what to do, where
// there is no such library or it lacks one of the functions; no address is filled in then.
//
// `soname`: "libcudnn.so.9"; `product`: what to install, "cuDNN 9".
absl::Status OpenLibrary(const char* soname, const char* product,
                         absl::Span<const LibraryFunction> functions);

}  // namespace lockstep
