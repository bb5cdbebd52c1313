#pragma once

#include <vector>

#include "absl/status/status.h"
#include "core/kernels/kernels.h"
#include "core/nn/lora_options.h"
#include "core/nn/model.h"

namespace lockstep {

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
