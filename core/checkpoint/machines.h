#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/comm/communicator.h"

namespace lockstep {

// Which ranks of a group are on one machine, as far as checkpoints in memory go
// (core/checkpoint/in_memory.h): those that see each other's files there. Machines are numbered in
// the order of their first ranks.
class Machines {
 public:
  // Each rank's machine, by any numbers; none: all ranks, however many, are on one.
  explicit Machines(const std::vector<int>& of_ranks = {});

  bool are_several() const { return ranks_.size() > 1; }
  // Whether the rank is the one that tidies up on its machine.
  bool IsFirst(int rank) const {
    return of_ranks_.empty() ? rank == 0 : RanksOf(Of(rank)).front() == rank;
  }

  // The rest is for machines whose ranks are known.
  int count() const { return static_cast<int>(ranks_.size()); }
  int Of(int rank) const { return of_ranks_[static_cast<size_t>(rank)]; }
  const std::vector<int>& RanksOf(int machine) const {
    return ranks_[static_cast<size_t>(machine)];
  }
  // The rank on the next machine that keeps what `rank` has in memory. Several may have the same.
  int NeighbourOf(int rank) const;
  // Those of some of the ranks, which count anew.
  Machines Among(absl::Span<const int> members) const;

 private:
  std::vector<int> of_ranks_;            // [rank]
  std::vector<std::vector<int>> ranks_;  // [machine], ascending
};

// Called by all ranks of a group.
absl::StatusOr<Machines> FindMachines(Communicator& ranks);

}  // namespace lockstep
