// What a plan can be asked beside "which mesh": several numbers of ranks, several clusters.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "foresight/cluster.h"

namespace lockstep {

// "1024", "8,16,32", or "8,16,...,16384": the steps go on as the two numbers before the dots begin,
// by a factor if one leads to the last number, else by a difference. InvalidArgument otherwise.
absl::StatusOr<std::vector<int64_t>> ParseRanks(absl::string_view text);

// A cluster and what tells it from the others of a plan.
struct NamedCluster {
  std::string name;
  Cluster cluster;
};

// "network=100Gbit,400Gbit": the cluster with each of the values. What can vary: network (bandwidth
// of a node to the others), latency (between nodes), link (bandwidth between the devices of a
// node), memory and bandwidth (of a device), peak (matrix products of all dtypes: the largest of
// them gets this value). InvalidArgument names what is wrong.
absl::StatusOr<std::vector<NamedCluster>> Vary(const NamedCluster& base, absl::string_view text);

}  // namespace lockstep
