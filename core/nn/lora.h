#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/kernels/kernels.h"
#include "core/nn/model.h"

namespace lockstep {

// Low-rank adaptation (Hu et al., "LoRA", 2021): a model is frozen, and layers of it get adapters
// (adapter.h), which alone are trained.
struct LoraOptions {
  // Layers to adapt: `*` matches any run of characters; the name of a module stands for all layers
  // in it. Of packed projections also parts: "*.qkv.q". Parts of a layer that is chosen as a whole
  // get no adapters of their own.
  std::vector<std::string> layers;
  int64_t rank = 8;
  double alpha = 8;
  double dropout = 0;            // of the adapters' inputs
  bool rank_stabilised = false;  // Kalajdzievski, "A Rank Stabilization Scaling Factor", 2023

  // What B A x is multiplied by: alpha / rank, or alpha / sqrt(rank).
  float scale() const;
};

// Freezes a model without memory, batch statistics included, and adds the adapters. As B starts as
// zeros, the model computes what it did, to the bit. InvalidArgument for a pattern that matches no
// layer, with the names near to it.
absl::Status AddAdapters(Model& model, const LoraOptions& options);

// Whether parts of a model are frozen, and others not.
bool HasAdapters(const Model& model);

// Adapters that have become a part of the weights of a model with memory, all of it on this rank:
// W + scale B A, computed in fp32 and rounded as W is. What is merged computes without them. The
// weights as they were are kept aside: taking the product away again would not bring their bits
// back.
class MergedAdapters {
 public:
  // Model and kernels outlive it.
  MergedAdapters(Model& model, Kernels& kernels);
  MergedAdapters(const MergedAdapters&) = delete;
  MergedAdapters& operator=(const MergedAdapters&) = delete;

  // Gives the weights their bits, and the adapters their work back.
  void Unmerge();

 private:
  struct Kept {
    Tensor weight, before;
  };
  Model& model_;
  Kernels& kernels_;
  std::vector<Kept> kept_;
};

}  // namespace lockstep
