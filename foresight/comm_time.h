#pragma once

#include "core/comm/operation.h"

namespace lockstep {

// Says where the members of a group are. Its nodes lie side by side, under as few switches as can
// be.
struct GroupPlacement {
  int ranks = 1;
  int per_node = 1;  // of them in one node; the last node may have fewer
  int at_once = 1;   // groups of one node that do the same at the same time, and share its adapters
};

// How long communication takes. Implementations may be called by any thread.
class CommTime {
 public:
  virtual ~CommTime() = default;

  // Seconds of a call in which all members take part, from when the last of them makes it. Payload
  // as in core/comm/signature.h: what one member contributes to a broadcast, reduce or all-reduce,
  // and the chunks of all members together elsewhere. Send and recv: a message within the node if
  // per_node is 2 or more, or else between nodes. The groups fit into the cluster.
  virtual double Collective(Operation operation, double payload_bytes,
                            const GroupPlacement& placement) const = 0;

  // Seconds of a message between two devices of a node, or of two nodes, while `at_once` devices of
  // the node send one each.
  virtual double Message(double bytes, bool within_node, int at_once) const = 0;

  // Seconds by which a call takes longer because members that have computed for `apart` seconds
  // since they last met wait for the last of them.
  virtual double Wait(double /*apart*/, const GroupPlacement& /*placement*/) const { return 0; }

  // Whether members move data with the cores that they compute with, so that nothing overlaps.
  virtual bool HoldsUpCompute(const GroupPlacement& /*placement*/) const { return false; }
};

}  // namespace lockstep
