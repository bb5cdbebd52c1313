#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/config/config.h"
#include "core/config/settings.h"

namespace lockstep {

// Returns the configuration that a run is in effect trained with: `given`, the default of each key
// that was asked for (`record`) in one of the top-level `tables`, and what the run has decided by
// itself (`settings`): threads of a rank, how the mesh cuts sums, samples of a validation batch. As
// a --config it is accepted, and gives the same run, whatever the defaults of a later version are.
absl::StatusOr<Config> ResolvedConfig(const Config& given, const ConfigRecord& record,
                                      const std::vector<std::string>& tables,
                                      const Settings& settings);

// Returns the same for a run with legs. `given` is what the user says of all legs; `record` and
// `settings` are the first leg's. Keys that may differ from leg to leg are those of the mesh and of
// mechanisms (IsLaidOutByLegs) and the threads of a rank. They stand there only as the user has
// given them, since each leg finds its own values of them.
absl::StatusOr<Config> ResolvedConfigOfLegs(const Config& given, const ConfigRecord& record,
                                            const std::vector<std::string>& tables,
                                            const Settings& settings);

}  // namespace lockstep
