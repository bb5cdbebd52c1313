#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>

#include "absl/status/status.h"
#include "core/comm/operation.h"
#include "foresight/cluster.h"
#include "foresight/comm_time.h"
#include "foresight/flow_simulation.h"

namespace lockstep {

// How long communication takes on a cluster.
//
// A call takes the fastest of the algorithms that suit it, each latency + bytes / bandwidth:
//
//   ring          through all members, node by node. A payload is cut into a ring for each member
//                 in a node, so that the crossing from node to node goes round among them (NCCL's
//                 channels)
//   tree          two binary trees over the nodes with half the payload each (Sanders, Speck and
//                 Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
//                 2009), and a chain in each node, as NCCL has them. Nodes and network take turns:
//                 the all-reduces of 16 A100s on two nodes (vTrain's rows with tp 16) take as long
//                 as both together
//   hierarchical  reduce-scatter in the nodes, a ring between nodes for each place in them,
//                 all-gather in the nodes, one after the other
//   direct        every message at once: gather, scatter, all-to-all
//
// What takes part in which: all-reduce in the first three; reduce-scatter and all-gather in ring
// and hierarchical; broadcast and reduce in ring, as a chain, and tree; a barrier is an all-reduce,
// and a split an all-gather, of nothing.
//
// Latency: a latency for each message that waits for another, counted as in NCCL's own choice of
// algorithms (its src/graph/tuning.cc): a ring of n members on k nodes waits for n-k messages in
// nodes and k-1 between nodes in one round, a tree for ceil(log2 k) and a chain.
//
// Bandwidth: SimGrid lets all messages of the algorithm's steady state flow at once, those of the
// groups at once too, and says when the last one ends. Doubling all flows doubles that time, so
// that one simulation gives bytes/s for all sizes. Nodes that do the same are folded:
//
//   ring          2 nodes, or 2 switches with at most 2 nodes each. Every link there carries the
//                 flows that each of its like carries in the whole, whose fair shares are unique;
//                 so the rates are those of the whole.
//   tree          at most 16 nodes, where inner nodes have all their neighbours: a larger tree has
//                 no fuller link. (Between switches of 16 nodes or more, up to four halves of the
//                 payload are not seen.)
//   direct        2 nodes a switch; those beside a member stand for all others. Links carry the
//                 bytes of the whole, in as many flows for up to 32 members; in proportion for
//                 more.
//
// So 16,384 ranks cost what a few dozens do, and each placement is simulated once.
//
// What was fitted (Cluster::fitted). No rate exceeds the cluster's: efficiencies are at most 1.
//
//   collective_start    seconds that each collective takes before its first message; default 0
//   payload_rate        bytes/s at which a member takes its payload through its memory beside the
//                       messages, at most device.bandwidth: twice in an all-reduce, whose two
//                       halves each do, and once elsewhere; default 0: in no time
//   link_efficiency     of node.link_bandwidth, in collectives; default 1
//   message_efficiency  of node.link_bandwidth, for a message between two devices; default 1
//   adapter_efficiency  of network.bandwidth; default 1
//   adapter_strided_efficiency
//                       of that again, in collectives of strided groups; default 1. A group is
//                       strided if it has several members in each of several nodes and no two of
//                       them share an adapter, though each adapter has several devices: a ring that
//                       enters a node by one adapter has to leave it by another
class NetworkTime final : public CommTime {
 public:
  static constexpr const char* kFittedNames[] = {
      "collective_start",   "payload_rate",       "link_efficiency",
      "message_efficiency", "adapter_efficiency", "adapter_strided_efficiency"};

  // InvalidArgument names the entry of the cluster that no network can have: a bandwidth of zero
  // between devices or nodes that there are, an efficiency above 1, an oversubscription below 1.
  static absl::Status Check(const Cluster& cluster);

  // The cluster has passed Check.
  explicit NetworkTime(const Cluster& cluster);

  // Throws StatusException where the system has no process or memory left to simulate with.
  double Collective(Operation operation, double payload_bytes,
                    const GroupPlacement& placement) const override;

  // Between nodes a message leaves its switch if there are several; as all nodes of the switch do,
  // it gets their share of what lies above.
  double Message(double bytes, bool within_node, int at_once) const override;

  // The cluster's network for SimulateFlows, with so many switches, nodes of each and devices of
  // each node. Switches are joined over the shares of `uplinks` nodes in what lies above a switch:
  // as many as `nodes` if each node of the cluster does what one of the platform does, or
  // network.nodes_a_switch if all others keep silent.
  FlowPlatform Platform(int switches, int nodes, int devices, int uplinks) const;

  // Simulations so far: of each placement and pattern one.
  int64_t simulations() const;

 private:
  // What is simulated; network_time.cc says which flows.
  enum class Pattern { kRing, kTreeDown, kTreeBoth, kAllToAll, kFromRoot, kMessage };
  struct Place {
    Pattern pattern;
    int members;  // of a group in one node
    int nodes;    // of a group
    int groups;   // at once
    bool is_strided;

    friend auto operator<=>(const Place&, const Place&) = default;
  };

  bool LeavesSwitch(int nodes) const;
  // Whether no two members of a group in a node share an adapter, where devices do. Members of
  // groups at once stand in turns: as many devices apart as there are groups.
  bool IsStrided(int members, int nodes, int groups) const;
  // Seconds for each byte that the pattern counts: simulated at the first call.
  double Slope(Pattern pattern, int members, int nodes, int groups, bool is_strided = false) const;
  double Simulate(const Place& place) const;

  const Cluster cluster_;
  double collective_start_, payload_rate_;
  double link_efficiency_, message_efficiency_, adapter_efficiency_, strided_efficiency_;

  mutable std::mutex mutex_;
  mutable std::map<Place, double> slopes_;  // guarded by mutex_
};

}  // namespace lockstep
