#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/comm/call.h"
#include "core/comm/group_info.h"
#include "core/comm/ledger.h"
#include "core/comm/operation.h"
#include "core/comm/work.h"
#include "core/tensor/tensor.h"

namespace lockstep {

// One rank's membership in a group of ranks, and all that the group can do together. The backends
// (local: threads of one process; MPI; NCCL) implement the protected part.
//
// Rules for all operations:
// - All members make the same calls in the same order, with the same sizes, dtype, reduction and
//   root. This is compared before data moves; what differs is an error on every member. Labels may
//   differ.
// - Calls return at once; Work tells when the tensors may be used again. Members may have any
//   number of calls in flight, in any number of groups.
// - Collectives of one group take effect in the order of their calls: one may read what an earlier
//   one, not yet waited for, writes. Between groups, and between collectives and messages, nothing
//   is ordered.
// - Progress: a collective ends once all members have called it, whatever order a member's calls in
//   different groups have and whatever it waits for. Only a cycle of waits can block: rank 0
//   waiting in group A for rank 1, who waits in group B for rank 0 and would call in A only
//   afterwards. The timeout ends that, naming both.
// - Reductions combine elements along a tree over the ranks (core/base/sum_tree.h), (x0 + x1) +
//   (x2 + x3) of four, whose nodes are each rounded to the dtype, on every backend but NCCL: so
//   results agree to the bit, also with those of a rank that adds up all of them itself. NCCL has
//   an order and a rounding of its own, and may lose a NaN under kMin and kMax.
// - dtypes: f32, f16, bf16, f64, i32, i64, and u8 where nothing is reduced. Empty tensors are fine.
// - In place means exactly what each operation says; other overlap is a CHECK, as are dtypes, sizes
//   or roots that cannot be right by themselves.
// - An error is for good: all later calls and waits, in all groups of the world, return it.
// - Devices: an operation reads and writes in the order of the rank's compute stream. A
//   communicator of ranks on devices takes tensors of either memory, one call's all in the same.
//
// `label` says what a call is for ("gradients", "parameters", "statistics", ...): the rank's ledger
// adds up time and bytes by operation and label.
//
// One thread of the rank at a time calls into one communicator. Communicators outlive their works;
// the allocators of tensors in flight outlive both.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return group_->rank; }  // of this member, in [0, size())
  int size() const { return group_->size(); }
  const std::string& name() const { return group_->name; }
  // The ranks of the members in the world, by their rank here.
  const std::vector<int>& members() const { return group_->members; }
  const GroupInfo& group() const { return *group_; }
  Ledger& ledger() const { return ledger_; }

  // `output` of every member = the reduction of all inputs. In place: the same tensor twice.
  Work AllReduce(const Tensor& input, const Tensor& output, ReduceOp op, absl::string_view label);

  // The inputs are reduced, and member i gets chunk i of the result: counts[i] elements, or equally
  // many if `counts` is empty. In place: `output` is the own chunk of `input`.
  Work ReduceScatter(const Tensor& input, const Tensor& output, ReduceOp op,
                     absl::string_view label, absl::Span<const int64_t> counts = {});

  // `output` of every member = all inputs one after the other; counts[i] elements from member i, or
  // equally many from each. In place: `input` is the own chunk of `output`.
  Work AllGather(const Tensor& input, const Tensor& output, absl::string_view label,
                 absl::Span<const int64_t> counts = {});

  // `tensor` of every member = that of the root.
  Work Broadcast(const Tensor& tensor, int root, absl::string_view label);

  // As AllReduce, but only the root has an output; the others' may be undefined.
  Work Reduce(const Tensor& input, const Tensor& output, ReduceOp op, int root,
              absl::string_view label);

  // As AllGather, but only the root has an output; the others' may be undefined.
  Work Gather(const Tensor& input, const Tensor& output, int root, absl::string_view label,
              absl::Span<const int64_t> counts = {});

  // `output` of member i = chunk i of the root's input; the others' inputs may be undefined. In
  // place on the root: `output` is its own chunk of `input`.
  Work Scatter(const Tensor& input, const Tensor& output, int root, absl::string_view label,
               absl::Span<const int64_t> counts = {});

  // Chunk j of member i's output = chunk i of member j's input; all chunks are equal. In place: the
  // same tensor twice.
  Work AllToAll(const Tensor& input, const Tensor& output, absl::string_view label);

  // A message to another member, met there by a Recv of the same size and dtype. Messages from one
  // member to another are received in the order in which they were sent; nothing else is ordered,
  // so a member may send before it receives while its peer does the same. The work of a send is
  // over when the message has been taken.
  Work Send(const Tensor& tensor, int to, absl::string_view label);
  Work Recv(const Tensor& tensor, int from, absl::string_view label);

  // The way of messages from one member to another.
  struct Route {
    int from, to;
  };
  // Makes what carries messages on these routes now: NCCL cannot connect two GPUs while a kernel of
  // its waits on one of them for another rank. Called by all members, with the same routes in the
  // same order, before the first message takes one. Blocks. Other routes are connected by their
  // first message. Nothing to do where messages need no connection.
  virtual absl::Status ConnectRoutes(absl::Span<const Route> /*routes*/) {
    return absl::OkStatus();
  }

  // Over once all members have called it.
  Work Barrier(absl::string_view label);

  // Makes sub-groups; called by all members. Those with equal `color` form a group, ordered by
  // `key` and then by rank here, called `name` (the same for all of them). With color < 0 a member
  // takes part in the call but joins no group, and gets a null pointer. Blocks.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key,
                                                              absl::string_view name) = 0;

  // Same as Split, for groups that every member can derive: choice_of(rank) is the choice of the
  // member with that rank in this group.
  struct Choice {
    int color, key;
  };
  virtual absl::StatusOr<std::unique_ptr<Communicator>> SplitBy(
      absl::FunctionRef<Choice(int rank)> choice_of, absl::string_view name) {
    const Choice own = choice_of(rank());
    return Split(own.color, own.key, name);
  }

  // This rank has failed because of `cause`: all waits of all ranks of the world, now and later,
  // end with an error that says so. Returns at once. The first failure of a world stands.
  virtual void Abort(const absl::Status& cause) = 0;

  // OK, or why this communicator has failed.
  virtual absl::Status status() const = 0;

 protected:
  // Make calls of a host's group, for tensors that they move themselves or not at all.
  friend class DeviceCommunicator;
  friend class FoldedCommunicator;
  friend class QuietCommunicator;

  // The ledger outlives the communicator.
  Communicator(std::shared_ptr<const GroupInfo> group, Ledger& ledger)
      : group_(std::move(group)), ledger_(ledger) {}

  // Begins a call and enters it into the ledger.
  virtual Work Start(Call call) = 0;

  // This rank goes away amid a call, as a step does that ends with an error: fails the world until
  // the rank's runner says why.
  virtual void GiveUp(absl::string_view call) = 0;

  const std::shared_ptr<const GroupInfo>& shared_group() const { return group_; }

 private:
  std::shared_ptr<const GroupInfo> group_;
  Ledger& ledger_;
};

}  // namespace lockstep
