#include "tools/divergence/held_tensors.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/base/status.h"
#include "core/probe/element_values.h"

namespace lockstep {

using reference::Array;
using reference::Result;

absl::StatusOr<Array> ReadArray(const ProbedRun& run, const ProbedWhole& tensor) {
  LS_ASSIGN_OR_RETURN(const std::string bytes, run.Values(tensor));
  Array array(Shape(absl::MakeConstSpan(tensor.shape)));
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  for (int64_t i = 0; i < array.elements(); ++i) {
    array.value[static_cast<size_t>(i)] = ValueOf(tensor.dtype, BitsAt(tensor.dtype, data, i));
  }
  return array;
}

absl::Status HoldTensor(const ProbedRun& run, const ProbedWhole& tensor, const Result& expected,
                        OwnErrors& errors, double epsilon) {
  LS_ASSIGN_OR_RETURN(const Array values, ReadArray(run, tensor));
  if (values.elements() != expected.elements()) {
    return InvalidArgument(tensor.key.ToString(), " has ", values.elements(), " elements where ",
                           expected.elements(), " should be: the file of names is another model's");
  }
  if (epsilon == 0) epsilon = EpsilonOf(tensor.dtype);
  OwnError worst = {.tensor = &tensor};
  for (int64_t i = 0; i < values.elements(); ++i) {
    const double unit = epsilon * expected.magnitude[static_cast<size_t>(i)];
    const double off = std::abs(values[i] - expected[i]);
    // Where nothing is added up, nothing is off.
    const double units = off == 0 ? 0 : off / std::max(unit, 1e-300);
    if (units <= worst.units) continue;
    worst = {.tensor = &tensor,
             .element = i,
             .recorded = values[i],
             .expected = expected[i],
             .units = units};
  }
  ++errors.judged;
  if (worst.units > kOwnErrorUnits) {
    errors.errors.push_back(worst);
  } else {
    errors.most_units = std::max(errors.most_units, worst.units);
  }
  return absl::OkStatus();
}

}  // namespace lockstep
