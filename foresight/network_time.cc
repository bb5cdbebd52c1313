#include "foresight/network_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr const char* kCollectiveStart = "collective_start";
constexpr const char* kPayloadRate = "payload_rate";
constexpr const char* kLinkEfficiency = "link_efficiency";
constexpr const char* kMessageEfficiency = "message_efficiency";
constexpr const char* kAdapterEfficiency = "adapter_efficiency";
constexpr const char* kStridedEfficiency = "adapter_strided_efficiency";

// Bytes that simulations move: so many that they take long beside the simulator's precision.
constexpr double kPayload = 1e12;
// The nodes of a simulated tree: with so many, inner nodes have all their neighbours.
constexpr int kTreeNodes = 16;

// The most members to which a member of a direct exchange sends a flow each.
constexpr int kPeers = 32;

double FittedOr(const Cluster& cluster, const char* name, double otherwise) {
  const auto found = cluster.fitted.find(name);
  return found == cluster.fitted.end() ? otherwise : found->second;
}

int CeilLog2(int value) {
  int log = 0;
  while ((1 << log) < value) ++log;
  return log;
}

// The parent of each node in a binary tree over `nodes`, -1 for the root, node 0: the lowest set
// bit of a node's number says how high it is, and it hangs on the nearest higher one. Odd nodes are
// leaves, and with a power of two of nodes, so are all that are none.
std::vector<int> TreeParents(int nodes) {
  std::vector<int> parents(nodes, -1);
  for (int node = 1; node < nodes; ++node) {
    const int bit = node & -node;
    const int right = (node ^ bit) | (bit << 1);
    parents[node] = right < nodes ? right : node ^ bit;
  }
  return parents;
}

// Flows that begin at the same time, and are waited for.
class FlowSet {
 public:
  explicit FlowSet(const FlowPlatform& platform) : platform_(platform), steps_(platform.size()) {}

  // Device `device` of a node, the nodes counted through all switches.
  int At(int node, int device) const { return node * platform_.devices + device; }

  void Add(int from, int to, double bytes) {
    if (bytes > 0) steps_[from].push_back(FlowStep::Begin(flows_++, to, bytes));
  }
  // `peers` of `members` receive their part of the payload, and `to` stands for them. What they get
  // of a link depends on how many they are: a flow for each, or of many members fewer, in
  // proportion.
  void AddPeers(int from, int to, int peers, int members, double payload) {
    if (peers == 0) return;
    const double scale = std::min(1., static_cast<double>(kPeers) / members);
    const auto flows = std::max<int64_t>(1, std::llround(peers * scale));
    for (int64_t flow = 0; flow < flows; ++flow) {
      Add(from, to, payload * peers / members / static_cast<double>(flows));
    }
  }
  void AddMessage(int from, int to, double bytes) {
    steps_[from].push_back(FlowStep::Message(flows_++, to, bytes));
  }

  double Seconds() {
    for (std::vector<FlowStep>& steps : steps_) {
      const size_t begun = steps.size();
      for (size_t i = 0; i < begun; ++i) steps.push_back(FlowStep::Wait(steps[i].flow));
    }
    const auto times = SimulateFlows(platform_, steps_);
    ThrowIfError(times.status());
    double last = 0;
    for (const std::vector<double>& of_device : *times) {
      if (!of_device.empty()) last = std::max(last, of_device.back());
    }
    return last;
  }

 private:
  const FlowPlatform platform_;
  std::vector<std::vector<FlowStep>> steps_;
  int flows_ = 0;
};

}  // namespace

absl::Status NetworkTime::Check(const Cluster& cluster) {
  const auto wrong = [&](absl::string_view key, const auto& value, absl::string_view rule) {
    return InvalidArgument("cluster ", cluster.name, ": ", key, " is ", value, "; it must be ",
                           rule);
  };
  const auto positive = [](double value) { return std::isfinite(value) && value > 0; };
  const auto time = [](double value) { return std::isfinite(value) && value >= 0; };
  const Cluster::Node& node = cluster.node;
  const Cluster::Network& network = cluster.network;
  if (node.devices < 1) return wrong("node.devices", node.devices, "at least 1");
  if (network.nodes < 1) return wrong("network.nodes", network.nodes, "at least 1");
  if (node.devices > 1 && !positive(node.link_bandwidth)) {
    return wrong("node.link_bandwidth", node.link_bandwidth,
                 "above zero bytes/s where a node has several devices");
  }
  if (!time(node.link_latency)) {
    return wrong("node.link_latency", node.link_latency, "zero seconds or more");
  }
  if (network.nodes > 1) {
    if (!positive(network.bandwidth)) {
      return wrong("network.bandwidth", network.bandwidth,
                   "above zero bytes/s where there are several nodes");
    }
    if (!time(network.latency)) {
      return wrong("network.latency", network.latency, "zero seconds or more");
    }
    if (!std::isfinite(network.oversubscription) || network.oversubscription < 1) {
      return wrong("network.oversubscription", network.oversubscription, "1 or more");
    }
    if (network.adapters < 0) {
      return wrong("network.adapters", network.adapters, "0, for one a device, or more");
    }
    if (network.nodes_a_switch < 0) {
      return wrong("network.nodes_a_switch", network.nodes_a_switch, "0, for all, or more");
    }
  }
  if (const double start = FittedOr(cluster, kCollectiveStart, 0); !time(start)) {
    return wrong(std::string("fitted.") + kCollectiveStart, start, "zero seconds or more");
  }
  if (const double rate = FittedOr(cluster, kPayloadRate, 0);
      !time(rate) || (cluster.device.bandwidth > 0 && rate > cluster.device.bandwidth)) {
    return wrong(std::string("fitted.") + kPayloadRate, rate,
                 "zero, for no time, or more, and at most device.bandwidth");
  }
  for (const char* name :
       {kLinkEfficiency, kMessageEfficiency, kAdapterEfficiency, kStridedEfficiency}) {
    if (const double share = FittedOr(cluster, name, 1); !(share > 0 && share <= 1)) {
      return wrong(std::string("fitted.") + name, share, "above 0 and at most 1");
    }
  }
  return absl::OkStatus();
}

NetworkTime::NetworkTime(const Cluster& cluster)
    : cluster_(cluster),
      collective_start_(FittedOr(cluster, kCollectiveStart, 0)),
      payload_rate_(FittedOr(cluster, kPayloadRate, 0)),
      link_efficiency_(FittedOr(cluster, kLinkEfficiency, 1)),
      message_efficiency_(FittedOr(cluster, kMessageEfficiency, 1)),
      adapter_efficiency_(FittedOr(cluster, kAdapterEfficiency, 1)),
      strided_efficiency_(FittedOr(cluster, kStridedEfficiency, 1)) {
  const absl::Status status = Check(cluster);
  CHECK(status.ok()) << status;
}

double NetworkTime::Collective(Operation operation, double payload_bytes,
                               const GroupPlacement& placement) const {
  const int n = placement.ranks;
  const int m = placement.per_node;
  const int groups = placement.at_once;
  CHECK(n >= 1 && m >= 1 && m <= n && groups >= 1 && payload_bytes >= 0);
  const int k = (n + m - 1) / m;
  CHECK(m * groups <= cluster_.node.devices && k <= cluster_.network.nodes)
      << groups << " groups at once of " << n << " ranks, " << m << " in a node, on cluster "
      << cluster_.name << " of " << cluster_.network.nodes << " nodes with "
      << cluster_.node.devices << " devices";
  if (IsPointToPoint(operation)) return Message(payload_bytes, m > 1, groups);
  if (n == 1) return 0;

  const double within = cluster_.node.link_latency;
  const double between = cluster_.network.latency;
  const double round = (n - k) * within + (k - 1) * between;      // of a ring
  const double rounds = (m - 1) * within + (k - 1) * between;     // of its two levels
  const double depth = (m - 1) * within + CeilLog2(k) * between;  // of a tree
  const double share = (n - 1.0) / n;                             // sent by each of a ring
  // What each byte costs that a member passes on: round the ring, in its node alone, and to its
  // like in the next node alone.
  const bool is_strided = IsStrided(m, k, groups);
  const auto ring = [&] { return Slope(Pattern::kRing, m, k, groups, is_strided); };
  const auto in_node = [&] {
    return m > 1 ? (m - 1.0) / m * Slope(Pattern::kRing, m, 1, groups) : 0;
  };
  const auto levels = [&] {
    if (k == 1) return in_node();
    return in_node() + (k - 1.0) / k / m * Slope(Pattern::kRing, 1, k, m * groups, is_strided);
  };
  const auto tree = [&](Pattern pattern) {
    return Slope(pattern, 1, k, m * groups, is_strided) / m;
  };
  const bool is_all_reduce = operation == Operation::kAllReduce;
  const double in_memory = payload_rate_ > 0 ? (is_all_reduce ? 2 : 1) / payload_rate_ : 0;
  double fastest = HUGE_VAL;
  const auto consider = [&](double latency, double slope) {
    fastest = std::min(fastest, collective_start_ + latency + (slope + in_memory) * payload_bytes);
  };
  switch (operation) {
    case Operation::kBarrier:
      payload_bytes = 0;
      [[fallthrough]];
    case Operation::kAllReduce:
      consider(2 * round, 2 * share * ring());
      consider(2 * rounds, 2 * levels());
      if (k > 1) consider(2 * depth, 2 * in_node() + tree(Pattern::kTreeBoth));
      break;
    case Operation::kSplit:
      payload_bytes = 0;
      [[fallthrough]];
    case Operation::kReduceScatter:
    case Operation::kAllGather:
      consider(round, share * ring());
      consider(rounds, levels());
      break;
    case Operation::kBroadcast:
    case Operation::kReduce:
      consider(round, ring());
      if (k > 1) consider(depth, in_node() + tree(Pattern::kTreeDown));
      break;
    case Operation::kGather:
    case Operation::kScatter:
      consider(k > 1 ? between : within, Slope(Pattern::kFromRoot, m, k, groups));
      break;
    case Operation::kAllToAll:
      consider(k > 1 ? between : within, Slope(Pattern::kAllToAll, m, k, groups));
      break;
    case Operation::kSend:
    case Operation::kRecv:
      break;
  }
  return fastest;
}

double NetworkTime::Message(double bytes, bool within_node, int at_once) const {
  CHECK(bytes >= 0 && at_once >= 1 && at_once <= cluster_.node.devices);
  CHECK(within_node ? cluster_.node.devices > 1 : cluster_.network.nodes > 1)
      << "a message to nobody on cluster " << cluster_.name;
  return (within_node ? cluster_.node.link_latency : cluster_.network.latency) +
         bytes * Slope(Pattern::kMessage, 1, within_node ? 1 : cluster_.network.nodes, at_once);
}

FlowPlatform NetworkTime::Platform(int switches, int nodes, int devices, int uplinks) const {
  FlowPlatform platform;
  platform.switches = switches;
  platform.nodes = nodes;
  platform.devices = devices;
  platform.node_rate = cluster_.network.bandwidth * adapter_efficiency_;
  // A node's only device may have no links.
  platform.device_rate =
      cluster_.node.devices > 1 ? cluster_.node.link_bandwidth : platform.node_rate;
  platform.message_rate = platform.device_rate * message_efficiency_;
  platform.switch_rate = uplinks * platform.node_rate / cluster_.network.oversubscription;
  platform.node_latency = cluster_.node.link_latency;
  platform.latency = cluster_.network.latency;
  return platform;
}

int64_t NetworkTime::simulations() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(slopes_.size());
}

bool NetworkTime::LeavesSwitch(int nodes) const {
  return cluster_.network.nodes_a_switch > 0 && nodes > cluster_.network.nodes_a_switch;
}

bool NetworkTime::IsStrided(int members, int nodes, int groups) const {
  const int devices = cluster_.node.devices, adapters = cluster_.network.adapters;
  const bool are_shared = adapters > 0 && adapters < devices;
  return are_shared && members > 1 && nodes > 1 && int64_t{groups} * adapters >= devices;
}

double NetworkTime::Slope(Pattern pattern, int members, int nodes, int groups,
                          bool is_strided) const {
  // What differs in `nodes` alone may be the same when folded.
  if (pattern == Pattern::kRing || pattern == Pattern::kMessage) {
    nodes = LeavesSwitch(nodes) ? cluster_.network.nodes_a_switch + 1 : std::min(nodes, 2);
  } else if (pattern == Pattern::kTreeDown || pattern == Pattern::kTreeBoth) {
    nodes = std::min(nodes, kTreeNodes);
  }
  const Place place = {pattern, members, nodes, groups, is_strided};
  const std::lock_guard lock(mutex_);
  const auto found = slopes_.find(place);
  if (found != slopes_.end()) return found->second;
  const double slope = Simulate(place) / kPayload;
  slopes_.emplace(place, slope);
  return slope;
}

double NetworkTime::Simulate(const Place& place) const {
  const auto [pattern, m, k, groups, is_strided] = place;
  const bool leaves = LeavesSwitch(k);
  const int of_switch = leaves ? cluster_.network.nodes_a_switch : k;
  const bool tree = pattern == Pattern::kTreeDown || pattern == Pattern::kTreeBoth;
  // Nodes of a switch on the platform; a message leaves its switch from any of them.
  const int nodes = tree                                     ? of_switch
                    : leaves && pattern == Pattern::kMessage ? 1
                                                             : std::min(of_switch, 2);
  const int switches = tree ? (k + of_switch - 1) / of_switch : leaves ? 2 : 1;
  const bool all_leave = pattern == Pattern::kAllToAll || pattern == Pattern::kMessage;
  const int devices = pattern == Pattern::kMessage && k == 1 ? std::max(2, groups) : m * groups;
  FlowPlatform platform = Platform(switches, nodes, devices, all_leave ? nodes : of_switch);
  if (pattern != Pattern::kMessage) platform.device_rate *= link_efficiency_;
  if (is_strided) platform.node_rate *= strided_efficiency_;
  const int all = switches * nodes;  // nodes of the platform; of a tree, those from k on are idle
  FlowSet flows(platform);
  for (int group = 0; group < groups; ++group) {
    for (int i = 0; i < m; ++i) {
      const int here = group * m + i;
      const int next = group * m + (i + 1) % m;
      switch (pattern) {
        // Counts the bytes that each member passes on. One of m rings crosses here; the others
        // go on in the node. In a single node all of them do.
        case Pattern::kRing:
          for (int node = 0; node < all; ++node) {
            const double crosses = k == 1 ? 0 : kPayload / m;
            if (m > 1) flows.Add(flows.At(node, here), flows.At(node, next), kPayload - crosses);
            if (k > 1) flows.Add(flows.At(node, here), flows.At((node + 1) % all, here), crosses);
          }
          break;
        // Counts the payload, of which each of two trees has half. One's leaves are the other's
        // inner nodes.
        case Pattern::kTreeDown:
        case Pattern::kTreeBoth: {
          const std::vector<int> parents = TreeParents(k);
          const auto edge = [&](int upper, int lower, double bytes) {
            flows.Add(upper, lower, bytes);
            if (place.pattern == Pattern::kTreeBoth) flows.Add(lower, upper, bytes);
          };
          for (int node = 0; node < k; ++node) {
            if (parents[node] < 0) continue;
            // The other tree: mirrored, or for an odd number of nodes, where mirrored leaves would
            // be leaves again, shifted by one.
            const auto other = [k = k](int of) { return k % 2 == 0 ? k - 1 - of : (of + 1) % k; };
            edge(flows.At(parents[node], here), flows.At(node, here), kPayload / 2);
            edge(flows.At(other(parents[node]), here), flows.At(other(node), here), kPayload / 2);
          }
          break;
        }
        // Counts the payload, of which each member sends one n-th to each other.
        case Pattern::kAllToAll:
          for (int node = 0; node < all; ++node) {
            const int from = flows.At(node, here);
            const int beside = node / nodes * nodes + (node + 1) % nodes;
            flows.AddPeers(from, flows.At(node, next), m - 1, m * k, kPayload);
            flows.AddPeers(from, flows.At(beside, here), m * (of_switch - 1), m * k, kPayload);
            flows.AddPeers(from, flows.At((node + nodes) % all, here), m * (k - of_switch), m * k,
                           kPayload);
          }
          break;
        // Counts the payload, of which the first member of the first node sends one n-th to each
        // other. One node stands for all others of the switch, and one for those of others.
        case Pattern::kFromRoot: {
          const int root = flows.At(0, group * m);
          flows.AddPeers(root, flows.At(0, here), i > 0 ? 1 : 0, m * k, kPayload);
          flows.AddPeers(root, flows.At(1 % all, here), of_switch - 1, m * k, kPayload);
          flows.AddPeers(root, flows.At(nodes % all, here), k - of_switch, m * k, kPayload);
          break;
        }
        case Pattern::kMessage:
          flows.AddMessage(flows.At(0, here),
                           k == 1 ? flows.At(0, (here + 1) % devices) : flows.At(1, here),
                           kPayload);
          break;
      }
    }
  }
  return flows.Seconds();
}

}  // namespace lockstep
