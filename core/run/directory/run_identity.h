#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/config/config.h"
#include "core/data/dataset.h"

namespace lockstep {

// What tells one run from another: keys of the configuration with the values in effect, as TOML;
// and "data", a checksum of the files that the samples come from and of some samples, so that
// another file of the same name is seen, and another program that computes them.
using RunKeys = std::map<std::string, std::string>;

// The keys that a run has asked for, but for the tables run, trace and probe, which change no
// number. Reads four samples of the training split: an error if they cannot be read.
absl::StatusOr<RunKeys> KeysOfRun(const ConfigRecord& record, const Dataset& dataset);

// The keys that decide the curve: a run that goes on with other values of them has another curve.
// They are those of the seed, batch, cut, precision and data, and train.deferred_batch_norm where
// it is false. The model's keys are left to its fingerprint, the optimizer's to its state, and the
// schedule is free.
RunKeys KeysOfCurve(const RunKeys& keys);

// Whether each of `allowed`, what --allow_change names, is a key of a curve or a table of such.
absl::Status CheckAllowedChanges(const std::vector<std::string>& allowed, const RunKeys& curve);

// Called by all ranks at their start, before anything is written: whether all have been started
// with the same keys. FailedPrecondition on all ranks if not; one of them names the keys that
// differ from rank 0's.
absl::Status CheckSameOnAllRanks(const RunKeys& own, Communicator& ranks);

// A checksum of the program that is running, so that ranks see that they run the same.
absl::StatusOr<std::string> ProgramChecksum();

}  // namespace lockstep
