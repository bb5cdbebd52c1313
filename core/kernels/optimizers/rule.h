// What the rules of element-wise optimizers are written with. A rule is a struct in a header of its
// own beside this one:
//
//   struct Descent {
//     static constexpr char kName[] = "descent";  // its name in the configuration
//     float slowness = 1;                         // its options, with their defaults
//
//     // Reads the options from the table [optimizer]; `reader` is a ConfigReader.
//     template <typename Reader>
//     void Read(Reader& reader) {
//       reader.Read("slowness", &slowness, {.greater_than = 0});
//     }
//
//     // One step for one element.
//     struct Update {
//       // Names of the fp32 state tensors, as in checkpoints.
//       static constexpr std::array kStates = {"velocity"};
//       float rate;  // numbers of the step, the same for all elements
//
//       // Updates parameter p and its states, which start at 0; a reference for each state.
//       LS_HOST_DEVICE void operator()(float decay, float g, float& p, float& velocity) const;
//     };
//
//     // Returns use(update) for the step. Runs on the host, once a step.
//     template <typename Use>
//     auto WithUpdate(const OptimizerStep& step, Use&& use) const {
//       return use(Update{.rate = step.learning_rate / slowness});
//     }
//   };
//
// The update is the only place that says what a step computes: every device's kernels call it in
// their loops, with g = gradient * gradient_factor, and with decay = weight_decay for parameters
// that decay and 0 for others. The compilers fuse no multiply-adds by themselves, so an element has
// the same bits in any loop. A rule whose arithmetic depends on its options has several updates, of
// which WithUpdate chooses one (sgd.h).
//
// To add a rule: its header here and in BUILD, a line in registry.h, a plain double-precision
// version in core/kernels/reference_optimizers.cc, and configurations to test in
// core/kernels/kernels_suite_optimizer.cc. Configuration files, checkpoints, predictions of memory,
// and the tests of whole runs take it from the registry.

#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/base/host_device.h"

namespace lockstep {

// State tensors that an optimizer may have for each parameter.
inline constexpr size_t kMostOptimizerStates = 2;

// One step of an optimizer, for all parameters.
struct OptimizerStep {
  float learning_rate = 1e-3f;
  float weight_decay = 0;     // of parameters that decay
  float gradient_factor = 1;  // what gradients are multiplied by first: clipping, unscaling
  int64_t number = 1;         // counted from 1; for the bias correction
};

// The numbers of an update's states: 0, 1, ...
template <typename Update>
using StateIndices = std::make_index_sequence<Update::kStates.size()>;

}  // namespace lockstep
