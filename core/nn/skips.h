// Tensors that pass over blocks: one block stashes them, a later one pops them (Lee et al.,
// "torchgpipe", 2020).

#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/autograd/variable.h"

namespace lockstep {

class Block;

// What a skip is called in all of a model. A name space keeps two uses of one kind of block apart.
struct SkipName {
  std::string space;
  std::string name;

  std::string ToString() const;  // "space/name", or "name" in no name space

  friend auto operator<=>(const SkipName&, const SkipName&) = default;
};

// A skip's way from the block that stashes it to the one that pops it.
struct SkipPath {
  SkipName name;
  int64_t from = 0, to = 0;  // blocks
  int64_t elements = 0;      // of one sample
};

// Whether every skip is stashed once, and popped once by a later block. InvalidArgument lists every
// fault at once.
absl::Status VerifySkips(const std::vector<std::unique_ptr<Block>>& blocks);

// The paths of all skips, in the order in which they are popped. Requires VerifySkips.
std::vector<SkipPath> SkipPaths(const std::vector<std::unique_ptr<Block>>& blocks);

// The skips of one pass that are on their way. They hold variables as they are: between blocks of
// one rank a skip costs nothing, and its memory is given back after its last use.
class Skips {
 public:
  // Throw StatusException: FailedPrecondition where a skip of that name is there already, or none.
  void Put(const SkipName& name, Variable variable);
  Variable Take(const SkipName& name);

  bool Contains(const SkipName& name) const { return waiting_.contains(name); }
  bool empty() const { return waiting_.empty(); }

 private:
  std::map<SkipName, Variable> waiting_;
};

}  // namespace lockstep
