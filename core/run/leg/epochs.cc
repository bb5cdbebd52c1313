#include "core/run/leg/epochs.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/config/config_reader.h"
#include "core/config/key_ranges.h"

namespace lockstep {

bool CountsEpochs(const Config& config) {
  const ConfigValue* value = config.Table("train.epochs").value;
  if (value == nullptr) return false;
  const auto* number = value->As<double>();
  const auto* integer = value->As<int64_t>();
  return !(number != nullptr && *number == 0) && !(integer != nullptr && *integer == 0);
}

absl::StatusOr<Config> WithStepsOfEpochs(const Config& config, int64_t samples) {
  // What else is in these tables is read, and checked, with all settings.
  double epochs = 1;
  ConfigReader train(config.Table("train"));
  train.Read("epochs", &epochs, {.greater_than = 0, .at_most = kMostSteps});
  if (train.Has("steps")) {
    train.AddProblem("epochs", "is given beside train.steps; one of them is enough");
  }
  for (const std::string& key : train.Keys()) train.Table(key);
  int64_t size = 1;
  ConfigReader batch(config.Table("batch"));
  batch.Require("size", &size, {.at_least = 1, .at_most = kMostSamplesOfStep});
  for (const std::string& key : batch.Keys()) batch.Table(key);
  LS_RETURN_IF_ERROR(Both(train.Finish(), batch.Finish()));
  // Where there are too many, whoever reads train.steps says so.
  const double steps = std::min(
      0x1p62, std::ceil(epochs * static_cast<double>(samples) / static_cast<double>(size)));
  Config resolved = config.Without("train.epochs");
  LS_ASSIGN_OR_RETURN(
      const Config layer,
      Config::FromString(absl::StrFormat("train.steps = %.0f", steps),
                         absl::StrFormat("train.epochs = %g of %d samples", epochs, samples)));
  resolved.Merge(layer);
  return resolved;
}

}  // namespace lockstep
