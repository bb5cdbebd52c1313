// NVIDIA's libraries, opened when they are first needed: a program that is built with CUDA trains
// with --device cpu on machines that have none of them. Their functions are called as their headers
// declare them, once the library is loaded; a call before that ends the program.
//
// On emulated GPUs the libraries' stand-ins are linked, and loading does nothing.

#pragma once

#include "absl/status/status.h"

namespace lockstep::cuda {

// Each may be called at any time from any thread, costs nothing once the library is loaded, and
// returns Unavailable, with what to do, where the library is missing or too old.
absl::Status LoadCublasLt();
absl::Status LoadCudnn();
absl::Status LoadNccl();

}  // namespace lockstep::cuda
