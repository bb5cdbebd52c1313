#pragma once

#include "absl/status/statusor.h"
#include "core/config/config.h"
#include "core/data/dataset.h"
#include "core/nn/model.h"

namespace lockstep {

// Builds the model that the table [model] describes. `kind` is toy, resnet, unet, transformer or
// llama. `init` is a file that parameters start from: a checkpoint, or published weights
// (core/checkpoint/weights.h). The other keys are options of the kind. Classes, vocabulary and
// context come from the data set. An error names every wrong key, or says that the model does not
// fit the data.
absl::StatusOr<Model> MakeModel(const Config& config, const Dataset& dataset);

}  // namespace lockstep
