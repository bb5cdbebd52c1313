#pragma once

#include "absl/status/status.h"
#include "core/comm/communicator.h"

namespace lockstep {

// Called by all ranks of a run with how a part of it went that they do alike, such as reading the
// same file: OK on all ranks if `own` is OK on all of them. Else an error on all, which one of them
// tells: the first that has one returns it, and the others wait until its failure ends their waits.
absl::Status AgreeOnFirst(const absl::Status& own, Communicator& ranks);

}  // namespace lockstep
