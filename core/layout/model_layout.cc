#include "core/layout/model_layout.h"

#include <algorithm>
#include <iterator>  // std::ssize
#include <utility>

#include "core/tensor/allocator.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// The rank along pp that has a block; -1: none.
int RankOfBlock(const std::vector<std::vector<BlockRange>>& blocks, int64_t block) {
  for (size_t pp = 0; pp < blocks.size(); ++pp) {
    for (const BlockRange& range : blocks[pp]) {
      if (range.Contains(block)) return static_cast<int>(pp);
    }
  }
  return -1;
}

}  // namespace

ModelLayout::ModelLayout(std::shared_ptr<const std::vector<ModelTensor>> tensors,
                         ModelLayoutOptions options)
    : tensors_(std::move(tensors)), options_(std::move(options)) {
  CHECK(tensors_ != nullptr);
  if (options_.blocks.empty()) options_.blocks = {{BlockRange()}};
  CHECK_EQ(std::ssize(options_.blocks), options_.mesh.pp);
  for (const ModelTensor& tensor : *tensors_) {
    CHECK_EQ(std::ssize(tensor.splits),
             options_.mesh.tp * (tensor.is_of_experts ? options_.mesh.ep : 1))
        << tensor.name;
    pp_.push_back(RankOfBlock(options_.blocks, tensor.block));
  }
  flat_.resize(tensors_->size());
  if (options_.divided != Divided::kNothing) MakeUnits();
}

void ModelLayout::MakeUnits() {
  std::vector<bool> has_ties(tensors().size());
  std::vector<std::pair<int, size_t>> tied_copies;  // rank along pp, owner
  for (size_t i = 0; i < tensors().size(); ++i) {
    const size_t owner = OwnerOf(i);
    if (tensors()[i].tied_to) has_ties[owner] = true;
    if (pp_[i] == pp_[owner]) continue;
    const std::pair<int, size_t> tied_copy = {pp_[i], owner};
    if (std::find(tied_copies.begin(), tied_copies.end(), tied_copy) == tied_copies.end())
      tied_copies.push_back(tied_copy);
  }
  for (size_t i = 0; i < tensors().size();) {
    const int64_t block = tensors()[i].block;
    const int pp = pp_[i];
    std::vector<size_t> frozen, trained, frozen_experts, trained_experts;
    for (; i < tensors().size() && tensors()[i].block == block; ++i) {
      if (tensors()[i].tied_to || tensors()[i].statistic) continue;
      if (has_ties[i]) {
        AddUnit(pp, false, {i});
      } else if (tensors()[i].is_of_experts && options_.mesh.ep > 1) {
        (tensors()[i].is_frozen ? frozen_experts : trained_experts).push_back(i);
      } else {
        (tensors()[i].is_frozen ? frozen : trained).push_back(i);
      }
    }
    for (std::vector<size_t>* unit : {&frozen, &trained, &frozen_experts, &trained_experts}) {
      AddUnit(pp, false, std::move(*unit));
    }
  }
  for (const auto& [pp, owner] : tied_copies) AddUnit(pp, true, {owner});
}

void ModelLayout::AddUnit(int pp, bool is_tied_copy, std::vector<size_t> members) {
  if (members.empty()) return;
  Unit unit = {.pp = pp,
               .is_tied_copy = is_tied_copy,
               .is_of_experts = tensors()[members[0]].is_of_experts && options_.mesh.ep > 1,
               .tensors = std::move(members),
               .flat = {}};
  const DType narrowest =
      SizeOf(options_.reduce) < SizeOf(options_.compute) ? options_.reduce : options_.compute;
  const int places = options_.mesh.tp * (unit.is_of_experts ? options_.mesh.ep : 1);
  for (int place = 0; place < places; ++place) {
    std::vector<TensorSplit> splits;
    for (const size_t tensor : unit.tensors) splits.push_back(tensors()[tensor].splits[place]);
    unit.flat.push_back(LayOut(splits, Shards(unit.is_of_experts), narrowest));
  }
  for (size_t member = 0; !is_tied_copy && member < unit.tensors.size(); ++member) {
    flat_[unit.tensors[member]] = FlatPlace{.unit = units_.size(), .member = member};
  }
  units_.push_back(std::move(unit));
}

size_t ModelLayout::SplitAt(bool is_of_experts, const MeshCoordinate& at) const {
  const int64_t experts = is_of_experts ? options_.mesh.ExpertPlaceOf(at) : 0;
  return static_cast<size_t>(experts * options_.mesh.tp + at.tp);
}

// Along dp and cp, with cp as the faster index.
int ModelLayout::Shards(bool is_of_experts) const {
  return is_of_experts ? options_.mesh.expert_groups() : options_.mesh.dp * options_.mesh.cp;
}

int ModelLayout::ShardAt(bool is_of_experts, const MeshCoordinate& at) const {
  return is_of_experts ? options_.mesh.ExpertGroupOf(at) : at.dp * options_.mesh.cp + at.cp;
}

TensorSlice ModelLayout::SliceAt(size_t tensor, const MeshCoordinate& at) const {
  const ModelTensor& whole = tensors()[tensor];
  const TensorSplit& split = whole.splits[SplitAt(whole.is_of_experts, at)];
  TensorSlice part = {.whole = {whole.shape.dims().begin(), whole.shape.dims().end()},
                      .first = 0,
                      .elements = split.elements,
                      .slice = split.slice};
  if (const auto& flat = flat_[OwnerOf(tensor)]) {
    const Unit& unit = units_[flat->unit];
    const Range shard = unit.flat[SplitAt(unit.is_of_experts, at)].InShard(
        flat->member, ShardAt(unit.is_of_experts, at));
    part.first = shard.first;
    part.elements = shard.count;
  }
  return part;
}

std::vector<TensorPlacement> ModelLayout::Of(int rank) const {
  const MeshCoordinate at = options_.mesh.CoordinateOf(rank);
  std::vector<TensorPlacement> trained, frozen, statistics;
  for (size_t i = 0; i < tensors().size(); ++i) {
    const ModelTensor& tensor = tensors()[i];
    if (tensor.tied_to) continue;
    TensorPlacement placement;
    placement.name = tensor.name;
    placement.dtype = tensor.statistic.value_or(tensor.is_frozen ? options_.compute : DType::kF32);
    placement.held = SliceAt(i, at);
    placement.is_frozen = tensor.is_frozen;
    if (pp_[i] != at.pp) {
      placement.held = {.whole = std::move(placement.held.whole)};
    } else {
      const TensorSplit& split = tensor.splits[SplitAt(tensor.is_of_experts, at)];
      if (!flat_[i]) placement.padding = split.padding;
      // Ranks along tp may have the same slice, where only the experts are divided.
      MeshCoordinate first = at;
      first.tp = 0;
      const bool is_split =
          split.slice != tensor.splits[SplitAt(tensor.is_of_experts, first)].slice;
      placement.is_writer = at.replicas == 0 &&
                            (flat_[i] || ShardAt(tensor.is_of_experts, at) == 0) &&
                            (at.tp == 0 || is_split);
    }
    (tensor.statistic   ? statistics
     : tensor.is_frozen ? frozen
                        : trained)
        .push_back(std::move(placement));
  }
  trained.insert(trained.end(), frozen.begin(), frozen.end());
  trained.insert(trained.end(), statistics.begin(), statistics.end());
  return trained;
}

std::vector<const ModelLayout::Unit*> ModelLayout::UnitsOf(int rank) const {
  std::vector<const Unit*> units;
  for (const Unit& unit : units_) {
    if (unit.pp == options_.mesh.CoordinateOf(rank).pp) units.push_back(&unit);
  }
  return units;
}

int64_t ModelLayout::Held(int rank, size_t tensor) const {
  const ModelTensor& whole = tensors()[tensor];
  return whole.splits[SplitAt(whole.is_of_experts, options_.mesh.CoordinateOf(rank))].held();
}

ModelLayout::KeptBytes ModelLayout::Kept(int rank, int64_t states) const {
  const int64_t compute = SizeOf(options_.compute), reduce = SizeOf(options_.reduce);
  const int64_t full = SizeOf(DType::kF32);
  const int64_t masters = options_.compute == DType::kF32 ? 0 : 1;
  const bool is_divided = options_.divided != Divided::kNothing;
  KeptBytes kept;
  for (size_t i = 0; i < tensors().size(); ++i) {
    const ModelTensor& tensor = tensors()[i];
    const bool is_here = Has(rank, i);
    const int64_t held = Held(rank, i);
    if (tensor.statistic) {
      if (!is_here) continue;
      kept.parameters += AlignedBytes(held * SizeOf(*tensor.statistic)) +
                         AlignedBytes(held * tensor.statistic_sums * full);
      continue;
    }
    if (is_divided) continue;
    const bool owns = !tensor.tied_to, has_owner = Has(rank, OwnerOf(i));
    if (is_here && (owns || !has_owner)) kept.parameters += AlignedBytes(held * compute);
    if (tensor.is_frozen) continue;
    // An owner receives others' uses.
    if (is_here || has_owner) kept.gradients += AlignedBytes(held * reduce);
    if (is_here && owns) kept.optimizer_state += (states + masters) * AlignedBytes(held * full);
  }
  if (!is_divided) return kept;
  for (const Unit* unit : UnitsOf(rank)) {
    const FlatLayout& flat = FlatOf(rank, *unit);
    const int shard = ShardAt(unit->is_of_experts, options_.mesh.CoordinateOf(rank));
    const auto at = [&](Divided from) {
      return options_.divided >= from ? flat.shard : flat.whole;
    };
    kept.parameters += at(Divided::kParameters) * compute;
    const size_t first = unit->tensors[0];
    if (tensors()[first].is_frozen) continue;
    for (size_t i = 0; i < tensors().size(); ++i) {
      if (tensors()[i].tied_to != first) continue;
      if (Has(rank, i)) {
        kept.gradients += at(Divided::kGradients) * reduce;
      } else if (!unit->is_tied_copy) {  // what comes from the other rank
        kept.gradients += flat.InShard(0, shard).count * reduce;
      }
    }
    if (unit->is_tied_copy) continue;
    kept.gradients += at(Divided::kGradients) * reduce;
    kept.optimizer_state += masters * flat.shard * full;
    for (size_t member = 0; member < flat.members.size(); ++member) {
      kept.optimizer_state += states * AlignedBytes(flat.InShard(member, shard).count * full);
    }
  }
  return kept;
}

}  // namespace lockstep
