#include "foresight/cluster_comm_time.h"

namespace lockstep {

ClusterCommTime::ClusterCommTime(const Cluster& cluster) : network_(cluster) {
  if (!cluster.measured.calls.empty()) {
    within_node_.emplace(cluster.measured, Transport::kThreads);
  }
}

double ClusterCommTime::Collective(Operation operation, double payload_bytes,
                                   const GroupPlacement& placement) const {
  if (HoldsUpCompute(placement)) {
    return within_node_->Collective(operation, payload_bytes, placement);
  }
  return network_.Collective(operation, payload_bytes, placement);
}

double ClusterCommTime::Message(double bytes, bool within_node, int at_once) const {
  if (within_node && within_node_) return within_node_->Message(bytes, within_node, at_once);
  return network_.Message(bytes, within_node, at_once);
}

double ClusterCommTime::Wait(double apart, const GroupPlacement& placement) const {
  return HoldsUpCompute(placement) ? within_node_->Wait(apart, placement) : 0;
}

bool ClusterCommTime::HoldsUpCompute(const GroupPlacement& placement) const {
  return within_node_.has_value() && placement.ranks <= placement.per_node;
}

}  // namespace lockstep
