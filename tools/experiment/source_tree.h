// The source tree from which a program was started, and the workloads in it.

#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace lockstep {

// The top of the source tree from which `bazel run` was called. FailedPrecondition where the
// program was started in another way.
absl::StatusOr<std::string> SourceTree();

// The file that describes a workload of a source tree. InvalidArgument, with the workloads that
// there are, for one that the tree has not.
absl::StatusOr<std::string> WorkloadFile(const std::string& tree, const std::string& workload);

}  // namespace lockstep
