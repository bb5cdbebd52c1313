#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/config/config.h"
#include "core/config/config_reader.h"

namespace lockstep {

// What a run makes of its validation losses, beyond writing them down.
struct BestSettings {
  bool keep = false;     // checkpoint.best: the checkpoint behind the lowest loss stays
  int64_t patience = 0;  // validations in a row without a lower loss end the run; 0: none do
  double min_delta = 0;  // a loss counts as lower when it is lower by more than this
  int64_t every = 0;     // validation.every: steps between validations; 0: there is one at the end
};

// Reads checkpoint.best, and patience and min_delta of the table validation, from readers that read
// other keys of these tables too. `every`: steps between validations; patience needs some.
void ReadBest(ConfigReader& checkpoint, BestSettings& best);
void ReadPatience(ConfigReader& validation, int64_t every, BestSettings& best);

// The settings of a configuration that ReadSettings has found right.
BestSettings BestSettingsOf(const Config& config);

}  // namespace lockstep
