#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "core/tensor/dtype.h"
#include "foresight/measurements.h"

namespace lockstep {

// The fastest time of each kernel over several measurements, and which training it comes from.
// Whatever disturbs a machine makes kernels slower, never faster.
class FastestKernels {
 public:
  // What was measured in the training with this number.
  void Add(size_t training, const std::vector<MeasuredKernel>& rows);

  std::vector<MeasuredKernel> Rows() const;

  // Trainings whose kernels take longer than the other measurements foretell, although the fastest
  // times count: something disturbed each of their measurements. Those with the most time to lose
  // come first.
  std::vector<size_t> Suspects() const;

 private:
  using Key = std::tuple<std::string, DType, int, int, decltype(MeasuredKernel::extents)>;
  struct Fastest {
    MeasuredKernel row;
    size_t training;
  };
  std::map<Key, Fastest> fastest_;
};

}  // namespace lockstep
