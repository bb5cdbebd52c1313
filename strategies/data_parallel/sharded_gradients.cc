#include "strategies/data_parallel/sharded_gradients.h"

#include <algorithm>
#include <utility>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/run/strategy/local_model.h"

namespace lockstep {

ShardedGradients::ShardedGradients(Model& model, const ModelLayout& layout, int place,
                                   const ShardGroups& groups, const ShardGroups* experts,
                                   DType reduce, int64_t shards, bool sums_in_backward,
                                   Kernels& kernels, Hooks hooks)
    : kernels_(kernels),
      groups_(groups),
      reduce_(reduce),
      shards_(shards),
      sums_in_backward_(sums_in_backward),
      hooks_(std::move(hooks)) {
  const std::vector<Parameter*> all = model.Parameters();
  const std::vector<ModelTensor>& tensors = layout.tensors();
  for (const ModelLayout::Unit* unit : layout.UnitsOf(place)) {
    const FlatLayout& flat = layout.FlatOf(place, *unit);
    const ShardGroups& own = unit->is_of_experts ? *experts : groups_;
    const size_t first = unit->tensors[0];
    if (tensors[first].is_frozen) continue;
    if (!unit->is_tied_copy) {
      std::vector<Parameter*> uses;
      for (const size_t i : unit->tensors) uses.push_back(all[i]);
      AddFlat(tensors[first].block, own, std::move(uses), flat);
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].tied_to == first && layout.Has(place, i)) {
        AddFlat(tensors[i].block, own, {all[i]}, flat);
      }
    }
  }
  std::stable_sort(flats_.begin(), flats_.end(),
                   [](const auto& a, const auto& b) { return a->block < b->block; });
  for (const BlockRange& range : layout.blocks(place)) {
    const auto end = std::min(range.end, static_cast<int64_t>(model.blocks.size()));
    for (int64_t i = range.begin; i < end; ++i) {
      model.blocks[i]->AddHooks(
          {.before_backward = [this, i] { Enter(i); }, .after_backward = [this, i] { Leave(i); }});
    }
  }
}

void ShardedGradients::AddFlat(int64_t block, const ShardGroups& groups,
                               std::vector<Parameter*> uses, const FlatLayout& layout) {
  const int rank = groups.shards.rank();
  const Tensor whole = kernels_.Empty({layout.whole}, reduce_, MemoryClass::kGradients);
  Tensor shard;
  if (stays_whole()) {
    shard = whole.View(rank * layout.shard, {layout.shard});
  } else {
    whole.storage().Release();
    shard = kernels_.Empty({layout.shard}, reduce_, MemoryClass::kGradients);
  }
  ShardSum sum(kernels_, shard, stays_whole() ? 1 : shards_, MemoryClass::kGradients);
  flats_.push_back(
      std::make_unique<Flat>(Flat{block, &groups, std::move(uses), whole, shard, std::move(sum)}));
  const Flat& flat = *flats_.back();
  for (size_t i = 0; i < flat.uses.size(); ++i) {
    Parameter& use = *flat.uses[i];
    use.gradient = flat.whole.View(layout.members[i].offset, use.held_shape());
    places_[&use] = {&flat, layout.OffsetInShard(i, rank), layout.InShard(i, rank).count};
  }
}

Tensor ShardedGradients::Held(const Parameter& use) const {
  const Place& place = places_.at(&use);
  return place.flat->shard.View(place.at, {place.elements});
}

// Ends the sum of the shard before, which still reads the whole.
void ShardedGradients::Materialize(Flat& flat) {
  while (flat.is_under_way) Advance();
  if (!stays_whole()) flat.whole.storage().Materialize();
}

void ShardedGradients::Enter(int64_t block) {
  for (const auto& flat : flats_) {
    if (flat->block == block) Materialize(*flat);
  }
}

void ShardedGradients::Leave(int64_t block) {
  if (!is_completing_ || !sums_in_backward_) return;
  for (const auto& flat : flats_) {
    if (flat->block != block) continue;
    flat->is_summed = true;
    Sum(*flat);
  }
}

void ShardedGradients::Completed(const BlockRange& stage) {
  is_completing_ = false;
  for (const auto& flat : flats_) {
    if (!stage.Contains(flat->block) || std::exchange(flat->is_summed, false)) continue;
    Materialize(*flat);  // where no backward has reached it
    Sum(*flat);
  }
}

void ShardedGradients::Sum(Flat& flat) {
  bool is_complete = true;
  for (Parameter* use : flat.uses) {
    is_complete = hooks_.end_shard(*use);
  }
  if (!is_complete) return;
  if (under_way_.size() == kUnderWay) Advance();
  if (stays_whole()) {  // and has waited since the first shard
    for (const Parameter* use : flat.uses) hooks_.hand_over(*use, use->gradient);
  }
  if (!flat.groups->contributes) kernels_.Fill(flat.whole, -0.0f);
  flat.reduce =
      flat.groups->shards.ReduceScatter(flat.whole, flat.shard, ReduceOp::kSum, "gradients");
  flat.is_under_way = true;
  under_way_.push_back(&flat);
}

void ShardedGradients::Advance() {
  Flat& flat = *under_way_.front();
  under_way_.pop_front();
  ThrowIfError(flat.reduce.Wait());
  if (!stays_whole()) flat.whole.storage().Release();
  flat.is_under_way = false;
  if (!flat.sum.Add() || groups_.replicas.size() == 1) return;
  for (const Parameter* use : flat.uses) hooks_.hand_over(*use, Held(*use));
  over_replicas_.push_back(
      groups_.replicas.AllReduce(flat.shard, flat.shard, ReduceOp::kSum, "gradients"));
}

void ShardedGradients::Await() {
  while (!under_way_.empty()) Advance();
  ThrowIfError(WaitAll(absl::MakeSpan(over_replicas_)));
  over_replicas_.clear();
}

int64_t ShardedGradients::partial_bytes() const {
  int64_t bytes = 0;
  for (const auto& flat : flats_) bytes += flat->sum.bytes();
  return bytes;
}

void ShardedGradients::AddTraffic(CostPrediction& prediction) const {
  for (const auto& flat : flats_) {
    const auto times = static_cast<double>(stays_whole() ? 1 : shards_);
    prediction.AddCollective(Operation::kReduceScatter, "gradients", flat->groups->shards.size(),
                             times * static_cast<double>(flat->whole.bytes()));
    if (groups_.replicas.size() == 1) continue;
    prediction.AddCollective(Operation::kAllReduce, "gradients", groups_.replicas.size(),
                             static_cast<double>(flat->shard.bytes()));
  }
}

// As Enter, Leave, Completed and Advance make gradients whole and give them back.
int64_t ShardedGradients::PeakWholeBytes(const std::vector<StageBackward>& backwards) const {
  int64_t live = 0, peak = 0;
  if (stays_whole()) return peak;
  std::vector<const Flat*> whole;
  std::deque<const Flat*> under_way;
  const auto advance = [&] {
    std::erase(whole, under_way.front());
    live -= under_way.front()->whole.bytes();
    under_way.pop_front();
  };
  const auto materialize = [&](const Flat* flat) {
    while (std::find(under_way.begin(), under_way.end(), flat) != under_way.end()) advance();
    if (std::find(whole.begin(), whole.end(), flat) != whole.end()) return;
    whole.push_back(flat);
    live += flat->whole.bytes();
    peak = std::max(peak, live);
  };
  const auto sum = [&](const Flat* flat) {
    if (under_way.size() == kUnderWay) advance();
    under_way.push_back(flat);
  };
  for (const StageBackward& backward : backwards) {
    std::vector<const Flat*> summed;
    for (auto flat = flats_.rbegin(); flat != flats_.rend();) {
      const auto block_end = std::find_if(
          flat, flats_.rend(), [&](const auto& other) { return other->block != (*flat)->block; });
      if (backward.stage.Contains((*flat)->block)) {
        const bool sums = backward.ends_shard && sums_in_backward_;
        for (auto i = flat; backward.reaches_inputs && i != block_end; ++i) materialize(i->get());
        for (auto i = flat; sums && i != block_end; ++i) sum(i->get());
      }
      flat = block_end;
    }
    if (!backward.ends_shard || sums_in_backward_) continue;
    for (const auto& flat : flats_) {
      if (!backward.stage.Contains(flat->block)) continue;
      materialize(flat.get());
      sum(flat.get());
    }
  }
  return peak;
}

}  // namespace lockstep
