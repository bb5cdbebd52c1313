#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/kernels/kernel_call.h"
#include "foresight/comm_time.h"
#include "foresight/measurements.h"

namespace lockstep {

// How long kernels take, from what was measured of others. For each kernel, dtype and set of
// tensors, log(seconds / work) is a linear function of the logarithms of the tensors' extents,
// fitted to all measured shapes with weights that fall with the distance to the shape in question:
// locally weighted regression (Cleveland, "Robust locally weighted regression and smoothing
// scatterplots", JASA 1979). Beside extents counts by how much vector registers exceed the columns.
class MeasuredKernelTime {
 public:
  // For ranks of `threads` threads, `ranks` of which compute at the same time. Where a kernel was
  // not measured so, the nearest such numbers count. The measurements outlive it.
  MeasuredKernelTime(const Measurements& measured, int ranks, int threads);

  // Seconds of a call that does `work` (MeasuredKernel::work). Nothing for a kernel, dtype and set
  // of tensors of which there is no measurement.
  std::optional<double> Seconds(const KernelCall& call, double work) const;

  // Seconds of the kernel that `row` was measured of, from the measurements of all other shapes.
  // Nothing where there are none.
  std::optional<double> SecondsFromOthers(const MeasuredKernel& row) const;

 private:
  struct Sample {
    std::vector<double> extents;  // their logarithms, by name
    double log_rate = 0;          // of seconds / work
  };
  enum class Own { kCounts, kIsLeftOut };  // a sample of the very shape in question

  std::optional<double> Seconds(const std::string& key, const std::vector<double>& extents,
                                double work, Own own) const;

  std::map<std::string, std::vector<Sample>> samples_;  // by kernel, dtype and tensors
};

// How long communication takes among ranks of this machine: between two measured sizes of a call
// the logarithm of its time is linear in that of its bytes; above the largest, time grows as bytes
// do. The time that ranks wait for the last of them is linear in the logarithm of the time that
// they have computed, and beyond the measured range that of the range's end. A number of ranks that
// was not measured takes the times of the nearest one.
class MeasuredCommTime final : public CommTime {
 public:
  MeasuredCommTime(const Measurements& measured, Transport transport);

  // Calls that were not measured take the time of an all-reduce of as many bytes, or none.
  double Collective(Operation operation, double payload_bytes,
                    const GroupPlacement& placement) const override;
  double Message(double bytes, bool within_node, int at_once) const override;
  double Wait(double apart, const GroupPlacement& placement) const override;
  bool HoldsUpCompute(const GroupPlacement& /*placement*/) const override { return true; }

 private:
  double Seconds(Operation operation, int ranks, double bytes) const;

  // Seconds by bytes, by operation and number of ranks.
  std::map<Operation, std::map<int, std::map<double, double>>> times_;
  // Seconds of a wait by seconds apart, by number of ranks.
  std::map<int, std::map<double, double>> waits_;
};

}  // namespace lockstep
