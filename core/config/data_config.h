#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/config/config.h"
#include "core/data/dataset.h"

namespace lockstep {

// Makes the data set that the table [data] describes: `kind` is cifar10, text, tokens, shapes,
// shapes_segmentation or markov, the other keys are those of its options (core/data). Real data is
// looked for in `data_directory`.
absl::StatusOr<std::shared_ptr<const Dataset>> MakeDataset(const Config& config,
                                                           const std::string& data_directory);

}  // namespace lockstep
