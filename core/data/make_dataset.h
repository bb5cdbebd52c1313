#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/data/cifar10.h"
#include "core/data/dataset.h"
#include "core/data/markov.h"
#include "core/data/shapes.h"
#include "core/data/text.h"

namespace lockstep {

// Which data set, and the options of each kind; those of the other kinds have no effect.
struct DatasetOptions {
  std::string kind = "shapes";  // one of DatasetKinds()
  Cifar10Options cifar10 = {};
  TextOptions text = {};
  ShapesOptions shapes = {};
  MarkovOptions markov = {};
};

// "cifar10", "markov", "shapes", "text".
const std::vector<std::string>& DatasetKinds();

// Makes or loads the data set. Only cifar10 and text look into `data_directory`. InvalidArgument
// for another kind, with the nearest one; else the errors of the kind's own Load or Create. Ranks
// that are threads of one process share the result.
absl::StatusOr<std::shared_ptr<const Dataset>> MakeDataset(const DatasetOptions& options,
                                                           const std::string& data_directory);

}  // namespace lockstep
