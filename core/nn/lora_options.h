#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// Low-rank adaptation (Hu et al., "LoRA", 2021): a model is frozen, and layers of it get adapters
// (adapter.h), which alone are trained.
struct LoraOptions {
  // Layers to adapt: `*` matches any characters; the name of a module stands for all layers in it.
  // A pattern may also name one projection of a packed layer: "*.qkv.q". A layer that is chosen as
  // a whole has one adapter, and its projections have none.
  std::vector<std::string> layers;
  int64_t rank = 8;
  double alpha = 8;
  double dropout = 0;            // of the adapters' inputs
  bool rank_stabilised = false;  // Kalajdzievski, "A Rank Stabilization Scaling Factor", 2023

  // What B A x is multiplied by: alpha / rank, or alpha / sqrt(rank).
  float scale() const {
    const auto r = static_cast<double>(rank);
    return static_cast<float>(alpha / (rank_stabilised ? std::sqrt(r) : r));
  }
};

}  // namespace lockstep
