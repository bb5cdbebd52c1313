#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/cuda/emulation/handles.h"
#include "nccl.h"

namespace lockstep::emulation {

enum class NcclOperation {
  kAllReduce,
  kReduce,
  kBroadcast,
  kReduceScatter,
  kAllGather,
  kSend,
  kRecv
};

// What one rank says of one of NCCL's calls; the peer is the root, or who sends or receives.
struct NcclCall {
  NcclOperation operation;
  const void* send;
  void* receive;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op = ncclSum;
  int peer = 0;

  std::string ToString() const;
  // Whether ranks may make both as one collective.
  bool Agrees(const NcclCall& other) const;
};

// A transfer between two ranks, or a collective of all. It moves when all have come to it, on their
// streams, and who comes later finds it done.
struct NcclTransfer {
  std::vector<std::optional<NcclCall>> calls;  // of each rank
  size_t expected = 0, queued = 0, arrived = 0;
  bool is_done = false;
};

// The ranks of a communicator. All of it is under the machine's lock.
class NcclGroup {
 public:
  explicit NcclGroup(int ranks) : ranks_(ranks), devices_(static_cast<size_t>(ranks), -1) {}

  // Returns whether the rank had not joined.
  bool Join(int rank, int device);
  bool IsComplete() const { return joined_ == ranks_; }
  int ranks() const { return ranks_; }
  int device(int rank) const { return devices_[static_cast<size_t>(rank)]; }
  void Abort() { is_aborted_ = true; }
  bool is_aborted() const { return is_aborted_; }

  // Matches a rank's next call with the others': collectives in their order, messages in that of
  // the pair. Returns null, with the reason in `problem`, where another rank's call contradicts.
  std::shared_ptr<NcclTransfer> Add(int rank, const NcclCall& call, std::string* problem);

 private:
  using Queue = std::deque<std::shared_ptr<NcclTransfer>>;

  // The first of the queue that the rank has not called for yet; a new one if there is none.
  std::shared_ptr<NcclTransfer> Slot(Queue& queue, int rank, size_t expected);

  const int ranks_;
  int joined_ = 0;
  bool is_aborted_ = false;
  std::vector<int> devices_;
  Queue collectives_;
  std::map<std::pair<int, int>, Queue> messages_;  // by sender and receiver
};

// Moves the data of a transfer to which all have come.
std::optional<Fault> RunTransfer(const NcclGroup& group, const NcclTransfer& transfer);

}  // namespace lockstep::emulation
