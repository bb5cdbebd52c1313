#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "foresight/cluster.h"

namespace lockstep {

// Reads a cluster to plan for. InvalidArgument as ReadCluster, and for a fitted number that no
// model of time has (device_time.h, network_time.h) or a network that fails NetworkTime::Check.
absl::StatusOr<Cluster> ReadPlanCluster(const std::string& path);

}  // namespace lockstep
