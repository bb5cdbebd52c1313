#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "core/comm/call.h"
#include "core/comm/device/device_stream.h"
#include "core/comm/signature.h"

namespace lockstep {

// Reductions with the bits of the tree over ranks, where a library that moves data between devices
// (NCCL) would add in an order of its own: the library exchanges what members have, and each member
// adds its chunk up along the tree. Where nodes have several ranks this happens in two levels,
// within a node and then between nodes, so that no more travels between nodes than must.

// Both directions between this member and another; either may be empty.
struct PeerMessage {
  int member = 0;
  const std::byte* send = nullptr;
  int64_t send_bytes = 0;
  std::byte* receive = nullptr;
  int64_t receive_bytes = 0;
};

// How a member reaches the others' devices.
class DevicePeers {
 public:
  virtual ~DevicePeers() = default;
  // Queues the messages on this member's stream. The others queue theirs, which match in order and
  // size. Throws StatusException.
  virtual void Exchange(absl::Span<const PeerMessage> messages) = 0;
};

// One of a group's members, which lie on nodes of `ranks_a_node` consecutive ranks each.
struct DeviceMember {
  int size = 1;
  int rank = 0;
  int ranks_a_node = 1;
};

// How many ranks each node has, from the node of each rank: where nodes have equally many, which
// are consecutive; else 1.
int RanksANode(absl::Span<const int64_t> node_of_rank);

// Whether the operation is one of those: an all-reduce, a reduce or a reduce-scatter.
bool IsReduction(Operation operation);

// Bytes that a member's part takes beside the tensors of the call: the most that any member needs.
// With B bytes of payload, n members and k ranks a node: B (n-1)/n for one level, and for two
// B (k-1)/k + B/n (n/k - 1), in chunks on 64-byte boundaries; a reduce has one chunk more.
int64_t ExactReductionBytes(const Signature& signature, const DeviceMember& member);

// Queues this member's part of a reduction on the stream, on which `peers` exchanges too. `held`
// has ExactReductionBytes. In place as the operation says. Two levels need a power of two of ranks
// a node, so that a node's sum is a node of the tree; other groups, and averages, take one.
void QueueExactReduction(const Call& call, const DeviceMember& member, std::byte* held,
                         DeviceStream& stream, DevicePeers& peers);

}  // namespace lockstep
