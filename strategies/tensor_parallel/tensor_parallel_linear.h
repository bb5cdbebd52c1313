#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "core/nn/layers.h"

namespace lockstep {

// A linear layer of which each rank of a group computes a part; alone, outside of a model's plan.
// Sizes need not divide: parts differ by one.
//
//   kColumnGathered  x is everybody's; each rank computes its output features, and gathers the
//                    others': y is everybody's, as that of a plain layer
//   kColumn          the same, but y is left as the own output features
//   kRow             x is the own input features, y everybody's: what follows a kColumn layer
class TensorParallelLinear : public LinearLayer {
 public:
  // The group outlives the layer.
  TensorParallelLinear(std::string name, int64_t in, int64_t out, SplitStyle style,
                       SplitGroup& group)
      : LinearLayer(std::move(name), in, out) {
    Split(style, group);
  }
};

}  // namespace lockstep
