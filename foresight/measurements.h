#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/comm/operation.h"
#include "core/kernels/kernel_call.h"
#include "core/tensor/dtype.h"

namespace lockstep {

// How long a call of a kernel took on this machine.
struct MeasuredKernel {
  std::string kernel;  // "Linear"
  DType dtype = DType::kF32;
  int ranks = 1, threads = 1;  // ranks that computed at the same time, and threads of each
  // Rows and columns of the kernel's tensors that there were, by name.
  std::map<std::string, std::pair<double, double>> extents = {};
  double work = 0;  // FLOP of kernels with matrix products, bytes of others
  double seconds = 0;
};

// The rows and columns of a call's tensors. Where a kernel works element by element, and so knows
// no rows, a tensor is one column of all its elements.
std::map<std::string, std::pair<double, double>> ExtentsOf(const KernelCall& call);

enum class Transport { kThreads, kMpi };
const char* Name(Transport transport);

// How long a collective took among ranks of this machine. kSend: a message.
struct MeasuredCall {
  Operation operation = Operation::kAllReduce;
  Transport transport = Transport::kThreads;
  int ranks = 2;
  double bytes = 0;  // of the payload, as in core/comm/signature.h
  double seconds = 0;
};

// How much later than a rank that meets nobody ranks of this machine go on that meet after they
// have computed for `apart` seconds: all wait for the last one. The call that they meet in is not
// counted.
struct MeasuredWait {
  Transport transport = Transport::kThreads;
  int ranks = 2;
  double apart = 0;
  double seconds = 0;
};

// What //tools/plan:calibrate has measured, as a cluster file keeps it: one line of text each.
//
//   Linear f32 1x2 bias=1x768 w=768x256 x=1024x256 y=1024x768 : 4.03e+08 in 0.00212
//   all_reduce threads 2 : 65536 in 1.2e-05
//   wait threads 2 : 0.0025 in 3.1e-05
struct Measurements {
  std::vector<MeasuredKernel> kernels = {};
  std::vector<MeasuredCall> calls = {};
  std::vector<MeasuredWait> waits = {};

  bool empty() const { return kernels.empty(); }
};

std::string ToText(const MeasuredKernel& row);
std::string ToText(const MeasuredCall& row);
std::string ToText(const MeasuredWait& row);
// InvalidArgument says what is wrong with a line.
absl::StatusOr<MeasuredKernel> ParseMeasuredKernel(const std::string& text);
absl::StatusOr<MeasuredCall> ParseMeasuredCall(const std::string& text);
absl::StatusOr<MeasuredWait> ParseMeasuredWait(const std::string& text);

}  // namespace lockstep
