#pragma once

#include <cstdint>
#include <string>

#include "core/nn/model.h"
#include "core/nn/split.h"
#include "core/run/strategy/local_model.h"

namespace lockstep {

// Whether a layer, by its full name, is in a block.
bool IsIn(const Block& block, const std::string& layer);

// What needs gradients of a layer: what comes in if anything before it is trained, what goes out if
// the layer itself is too. In the order of parameters, which is that of forward.
struct GradientNeeds {
  bool of_input = false, of_output = false;
};
GradientNeeds NeedsOf(const Model& model, const std::string& layer);

// How often backward runs a part of an operation of a block forward again because the block or the
// operation is recomputed. A part that needs no gradient is not.
int ForwardsAgain(const Model& model, const Block& block, const SplitTraffic::PartOf& operation);

// The operation that a layer, by its full name, is a part of; none where the model's traffic names
// none around it.
SplitTraffic::PartOf OperationOf(const Model& model, const std::string& layer);

// Experts of the routers of a local model, each router counted as often as it chooses for a micro-
// batch: that the local model runs forward `forwards` times, and recomputed parts once more.
int64_t RoutedExperts(const LocalModel& local_model, int forwards);

}  // namespace lockstep
