#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/checkpoint/tensor_slice.h"
#include "core/comm/mesh_shape.h"
#include "core/layout/flat_layout.h"
#include "core/layout/model_tensors.h"
#include "core/tensor/dtype.h"

namespace lockstep {

// Consecutive blocks of a model, [begin, end), by default all that there are.
struct BlockRange {
  int64_t begin = 0;
  int64_t end = std::numeric_limits<int64_t>::max();

  int64_t size() const { return end - begin; }
  bool Contains(int64_t block) const { return begin <= block && block < end; }
};

// What data-parallel ranks divide among them: nothing, or as stages 1, 2 and 3 of ZeRO (Rajbhandari
// et al., SC 2020). Each includes what stands before it.
enum class Divided { kNothing, kOptimizerState, kGradients, kParameters };

// What mechanisms decide of a layout.
struct ModelLayoutOptions {
  MeshShape mesh = {};
  // By rank along pp, the blocks of its stages in the order of the model. Empty: one rank has all.
  std::vector<std::vector<BlockRange>> blocks = {};
  Divided divided = Divided::kNothing;  // among ranks along dp and cp
  DType compute = DType::kF32;          // of parameters
  DType reduce = DType::kF32;           // of gradients
};

// What a rank holds of a tensor that a checkpoint keeps.
struct TensorPlacement {
  std::string name;
  DType dtype = DType::kF32;
  TensorSlice held;     // no elements where the rank has nothing of the tensor
  int64_t padding = 0;  // elements behind the slice, in memory only
  // Whether this rank saves the elements: one of the ranks that hold them does.
  bool is_writer = false;
  bool is_frozen = false;
};

// Which rank holds which elements of which tensor of a model: pure data, the same on every rank and
// for every rank of the mesh. Costs memory in proportion to the tensors times mesh.tp, so that one
// process can ask for thousands of ranks.
//
//   const ModelLayout layout(TensorsOf(model, mesh.tp), {.mesh = mesh, .blocks = blocks});
//   for (const TensorPlacement& placement : layout.Of(rank)) ...
//
// Stages place blocks on ranks along pp, tensor parallelism slices parameters along tp, and ranks
// along dp and cp keep all of that, or a shard of each unit of it (Unit). Ranks along replicas hold
// copies. Ranks along ep each have some of the experts; ranks with the same experts take the place
// of those along dp and cp. Optimizer state lies where its parameter is trained, element by
// element.
class ModelLayout {
 public:
  // What is divided into shards together, in one flat buffer: the frozen or the trained parameters
  // of a block, those of experts apart where ranks along ep divide them. A parameter to which
  // others are tied has a unit by itself, by which the gradient of each of its uses is divided; on
  // another rank with such uses lies a copy of this unit: a tied copy, whose values come from the
  // owner.
  struct Unit {
    int pp = 0;  // the rank along pp that holds it
    bool is_tied_copy = false;
    bool is_of_experts = false;
    std::vector<size_t> tensors;   // owners of their values, by index
    std::vector<FlatLayout> flat;  // as ModelTensor::splits
  };

  // `tensors` are split for mesh.tp ranks and divided for mesh.ep ranks; layouts may share them.
  // Blocks in none of the ranges are on no rank.
  ModelLayout(std::shared_ptr<const std::vector<ModelTensor>> tensors, ModelLayoutOptions options);
  ModelLayout(std::vector<ModelTensor> tensors, ModelLayoutOptions options)
      : ModelLayout(std::make_shared<const std::vector<ModelTensor>>(std::move(tensors)),
                    std::move(options)) {}

  const MeshShape& mesh() const { return options_.mesh; }
  const std::vector<ModelTensor>& tensors() const { return *tensors_; }
  const std::vector<BlockRange>& blocks(int rank) const {
    return options_.blocks[options_.mesh.CoordinateOf(rank).pp];
  }
  // Whether the block of a tensor, by index, is on a rank.
  bool Has(int rank, size_t tensor) const {
    return pp_[tensor] == options_.mesh.CoordinateOf(rank).pp;
  }

  // All tensors that own their value, in the same order for each rank: trained parameters, frozen
  // parameters, running statistics.
  std::vector<TensorPlacement> Of(int rank) const;

  // The units of a rank, those of tied copies last, each in the order of its blocks; none where
  // nothing is divided.
  std::vector<const Unit*> UnitsOf(int rank) const;
  // Where a rank's tensors of a unit lie in shards.
  const FlatLayout& FlatOf(int rank, const Unit& unit) const {
    return unit.flat[SplitAt(unit.is_of_experts, options_.mesh.CoordinateOf(rank))];
  }
  // Bytes that a rank keeps from step to step, without what comes and goes within one: each tensor
  // takes whole multiples of the allocator's alignment. Sums of batch statistics count as
  // parameters, fp32 masters beside a narrower compute dtype as optimizer state, of which there are
  // `states` tensors besides for each trained one.
  struct KeptBytes {
    int64_t parameters = 0, gradients = 0, optimizer_state = 0;
  };
  KeptBytes Kept(int rank, int64_t states) const;

 private:
  // Where a tensor lies among the units.
  struct FlatPlace {
    size_t unit = 0, member = 0;
  };

  void MakeUnits();
  void AddUnit(int pp, bool is_tied_copy, std::vector<size_t> members);
  // Which of its splits or layouts a rank has of a tensor or unit; how many ranks keep a shard of a
  // unit, and which of the shards a rank has.
  size_t SplitAt(bool is_of_experts, const MeshCoordinate& at) const;
  int Shards(bool is_of_experts) const;
  int ShardAt(bool is_of_experts, const MeshCoordinate& at) const;
  size_t OwnerOf(size_t tensor) const { return tensors()[tensor].tied_to.value_or(tensor); }
  int64_t Held(int rank, size_t tensor) const;
  // What a rank has of a tensor whose block it has.
  TensorSlice SliceAt(size_t tensor, const MeshCoordinate& at) const;

  std::shared_ptr<const std::vector<ModelTensor>> tensors_;
  ModelLayoutOptions options_;
  std::vector<int> pp_;  // by tensor, the rank along pp that has its block; -1: none
  std::vector<Unit> units_;
  std::vector<std::optional<FlatPlace>> flat_;  // by tensor; none: in no unit
};

}  // namespace lockstep
