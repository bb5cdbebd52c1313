#include "core/autograd/weight_gradients.h"

#include <utility>

namespace lockstep {

Destinations NextContributions(Kernels& kernels, Tape::Half half,
                               std::initializer_list<Leaf*> leaves) {
  Destinations destinations;
  std::vector<Tensor> fresh;
  for (Leaf* leaf : leaves) {
    destinations.tensors.emplace_back();
    if (!half.weights || !Trains(leaf)) continue;
    auto [tensor, write] = leaf->NextContribution(kernels);
    if (write == Write::kOverwrite) {
      fresh.push_back(tensor);
    } else {
      destinations.write = Write::kAccumulate;
    }
    destinations.tensors.back() = std::move(tensor);
  }
  // Leaves that are out of step, as where operations share one of them but not the others.
  if (destinations.write == Write::kAccumulate) {
    for (const Tensor& tensor : fresh) kernels.Fill(tensor, 0);
  }
  return destinations;
}

}  // namespace lockstep
