#include "foresight/plan_cluster.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "core/base/status.h"
#include "core/config/key_suggestions.h"
#include "foresight/device_time.h"
#include "foresight/network_time.h"

namespace lockstep {

absl::StatusOr<Cluster> ReadPlanCluster(const std::string& path) {
  LS_ASSIGN_OR_RETURN(Cluster cluster, ReadCluster(path));
  std::vector<std::string> known(std::begin(DeviceTime::kFittedNames),
                                 std::end(DeviceTime::kFittedNames));
  known.insert(known.end(), std::begin(NetworkTime::kFittedNames),
               std::end(NetworkTime::kFittedNames));
  for (const auto& [name, value] : cluster.fitted) {
    if (std::ranges::find(known, name) != known.end()) continue;
    return InvalidArgument(path, ": unknown key fitted.", name, SuggestKey("fitted", name, known));
  }
  LS_RETURN_IF_ERROR(Annotate(NetworkTime::Check(cluster), path));
  return cluster;
}

}  // namespace lockstep
