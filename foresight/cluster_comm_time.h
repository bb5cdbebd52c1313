#pragma once

#include <optional>

#include "foresight/cluster.h"
#include "foresight/comm_time.h"
#include "foresight/measured_time.h"
#include "foresight/network_time.h"

namespace lockstep {

// How long communication takes on a cluster whose nodes may be machines that were measured: within
// such a node as long as among the machine's threads, and everywhere else what the network's model
// says.
class ClusterCommTime final : public CommTime {
 public:
  // The cluster has passed NetworkTime::Check.
  explicit ClusterCommTime(const Cluster& cluster);

  double Collective(Operation operation, double payload_bytes,
                    const GroupPlacement& placement) const override;
  double Message(double bytes, bool within_node, int at_once) const override;
  double Wait(double apart, const GroupPlacement& placement) const override;
  bool HoldsUpCompute(const GroupPlacement& placement) const override;

 private:
  const NetworkTime network_;
  std::optional<MeasuredCommTime> within_node_;
};

}  // namespace lockstep
