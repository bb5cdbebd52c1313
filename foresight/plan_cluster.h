#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "foresight/cluster.h"

namespace lockstep {

// A cluster that can be planned for. As ReadCluster; and InvalidArgument names a fitted number that
// no model of time has (device_time.h, network_time.h), or what no network can have
// (NetworkTime::Check).
absl::StatusOr<Cluster> ReadPlanCluster(const std::string& path);

}  // namespace lockstep
