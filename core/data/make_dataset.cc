#include "core/data/make_dataset.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/nearest.h"

namespace lockstep {

const std::vector<std::string>& DatasetKinds() {
  static const auto& kinds = *new std::vector<std::string>{"cifar10", "markov", "shapes", "text"};
  return kinds;
}

absl::StatusOr<std::shared_ptr<const Dataset>> MakeDataset(const DatasetOptions& options,
                                                           const std::string& data_directory) {
  if (options.kind == "cifar10") return Cifar10::Load(data_directory, options.cifar10);
  if (options.kind == "markov") return Markov::Create(options.markov);
  if (options.kind == "shapes") return Shapes::Create(options.shapes);
  if (options.kind == "text") return Text::Load(data_directory, options.text);
  return absl::InvalidArgumentError(
      absl::StrCat("there is no data set \"", options.kind, "\"; did you mean \"",
                   NearestName(options.kind, DatasetKinds()), "\"? There are ",
                   absl::StrJoin(DatasetKinds(), ", "), "."));
}

}  // namespace lockstep
