#include "strategies/data_parallel/sharded.h"

#include <algorithm>
#include <utility>

#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// The ranks next to this one that keep units together; null where all do.
std::unique_ptr<Communicator> SplitNeighbours(Communicator& ranks, std::optional<int> neighbours) {
  if (!neighbours || *neighbours == ranks.size()) return nullptr;
  auto group = ranks.Split(ranks.rank() / *neighbours, ranks.rank(), "neighbours");
  ThrowIfError(group.status());
  return *std::move(group);
}

}  // namespace

Sharded::Sharded(DataParallelInputs inputs, const Sharding& sharding)
    : kernels_(inputs.rank.kernels),
      settings_(inputs.settings),
      ranks_(inputs.rank.mesh.data()),
      neighbours_(SplitNeighbours(inputs.rank.mesh.dp(), sharding.neighbours)),
      groups_{.shards = inputs.rank.mesh.dp(),
              .neighbours = neighbours_ != nullptr ? *neighbours_ : inputs.rank.mesh.dp(),
              .replicas = inputs.rank.mesh.replicas(),
              .divided = sharding.divided},
      unshard_(sharding.unshard),
      sums_in_backward_(inputs.layout.blocks[inputs.rank.mesh.coordinate().pp].size() == 1 &&
                        !inputs.halves_backwards),
      backwards_(std::move(inputs.backwards)),
      local_model_(inputs.rank, std::move(inputs.model), inputs.MakeLayout(sharding.divided),
                   inputs.rank.rank, settings_, inputs.targets_per_sample,
                   [this](Model& made, const ModelLayout& layout, int place) {
                     MakeValues(made, layout, place);
                   }) {
  if (groups_.divided == Divided::kOptimizerState) local_model_.AllocateGradients();
}

void Sharded::MakeValues(Model& model, const ModelLayout& layout, int place) {
  residency_ = std::make_unique<Residency>(model, layout, place, groups_, settings_.precision,
                                           unshard_, kernels_, settings_.seed);
  gradients_ =
      std::make_unique<ShardedGradients>(model, layout, place, groups_, settings_.precision.reduce,
                                         settings_.shards_of_rank(), sums_in_backward_, kernels_);
}

Tensor Sharded::ValuesOf(const Parameter& parameter) const {
  const Parameter* owner = parameter.tied_to == nullptr ? &parameter : parameter.tied_to;
  for (const TiedCopies& tied : residency_->tied_copies()) {
    if (tied.owner == owner) return tied.parameters->shard();
  }
  for (const auto& unit : residency_->units()) {
    const auto& members = unit->members();
    if (members.size() == 1 && members[0].parameter == owner) return unit->parameters().shard();
  }
  LOG(FATAL) << parameter.name << " is not tied to a parameter of another rank";
}

std::vector<TrainedTensor> Sharded::Trained() const {
  LocalModel::TrainedByName trained;
  for (const auto& unit : residency_->units()) {
    for (size_t i = 0; i < unit->trained().size(); ++i) {
      TrainedTensor tensor = unit->trained()[i];
      tensor.gradient = gradients_->Held(*unit->members()[i].parameter);
      trained[tensor.name] = tensor;
    }
  }
  return local_model_.Trained(trained);
}

std::vector<StateTensor> Sharded::State() const {
  NamedTensors values;
  for (const auto& unit : residency_->units()) {
    for (size_t i = 0; i < unit->members().size(); ++i) {
      values[unit->members()[i].parameter->name] = unit->values()[i];
    }
  }
  return local_model_.State(std::move(values));
}

void Sharded::BeginStep(double loss_scale) { local_model_.Clear(loss_scale); }

BackwardHooks Sharded::Completing(const BlockRange& /*stage*/, int64_t /*shard*/) {
  gradients_->Completing(end_shard_);
  return {};
}

void Sharded::Completed(const BlockRange& stage, int64_t /*shard*/) {
  gradients_->Completed(stage, end_shard_);
}

void Sharded::FinishGradients() {
  gradients_->Await();
  residency_->EndStep();
}

void Sharded::RoundMasters() {
  for (const auto& unit : residency_->units()) unit->parameters().RoundMaster();
}

void Sharded::ShareValues() {
  GatherWholes([](const Parameter&) { return true; });
}

void Sharded::ShareUpdates() {
  GatherWholes([](const Parameter& parameter) { return parameter.trainable; });
}

void Sharded::GatherWholes(const std::function<bool(const Parameter&)>& chosen) {
  if (divides_parameters()) return;
  std::vector<FlatParameters*> gathered;
  for (const auto& unit : residency_->units()) {
    if (chosen(*unit->members().front().parameter)) gathered.push_back(&unit->parameters());
  }
  for (const TiedCopies& tied : residency_->tied_copies()) {
    if (chosen(*tied.owner)) gathered.push_back(tied.parameters.get());
  }
  for (FlatParameters* parameters : gathered) parameters->GatherUpdates();
  for (FlatParameters* parameters : gathered) parameters->AwaitWhole();
}

int64_t Sharded::PeakWholeBytes(bool recomputes) const {
  int64_t peak = 0;
  if (!divides_parameters()) return peak;
  if (unshard_ == Unshard::kPass) {
    for (const BlockRange& range : local_model_.ranges()) {
      peak = std::max(peak, PeakParameterBytes(residency_->Needs(range), recomputes));
    }
    return peak;
  }
  for (const auto& unit : residency_->units()) peak += unit->parameters().whole().bytes();
  for (const TiedCopies& tied : residency_->tied_copies()) peak += tied.parameters->whole().bytes();
  return peak;
}

double Sharded::GatherBytes(double forwards) const {
  const double from_shards = RingFraction(groups_.shards.size());
  if (!divides_parameters()) {  // what the optimizer has updated
    int64_t updated = 0;
    for (const auto& unit : residency_->units()) {
      if (unit->is_trained()) updated += unit->parameters().whole().bytes();
    }
    for (const TiedCopies& tied : residency_->tied_copies()) {
      if (tied.owner->trainable) updated += tied.parameters->whole().bytes();
    }
    return from_shards * static_cast<double>(updated);
  }
  if (unshard_ == Unshard::kStep)
    return from_shards * static_cast<double>(PeakWholeBytes(forwards > 1));
  // The first forward gathers a unit from all shards. Until its backward is over, what the
  // neighbours keep is enough.
  const double from_neighbours = RingFraction(groups_.neighbours.size());
  double bytes = 0;
  for (const BlockRange& range : local_model_.ranges()) {
    for (const UnitNeeds& needs : residency_->Needs(range)) {
      const auto whole = static_cast<double>(needs.whole);
      const double again =
          needs.in_backward ? forwards * from_neighbours : (forwards - 1) * from_shards;
      bytes += whole * (from_shards + again);
    }
  }
  return bytes * static_cast<double>(settings_.micro_batches_of_rank());
}

void Sharded::AddCosts(double forwards, CostPrediction& prediction) const {
  prediction.memory = local_model_.Predict().memory;
  prediction.AddMemory(MemoryClass::kParameters, PeakWholeBytes(forwards > 1));
  prediction.AddMemory(MemoryClass::kGradients,
                       gradients_->partial_bytes() + gradients_->PeakWholeBytes(backwards_));

  prediction.AddTraffic(Operation::kAllGather, "parameters", GatherBytes(forwards));
  const int ranks = groups_.shards.size(), replicas = groups_.replicas.size();
  prediction.AddCollective(Operation::kReduceScatter, "gradients", ranks,
                           static_cast<double>(gradients_->summed_bytes()));
  if (replicas > 1) {
    prediction.AddCollective(Operation::kAllReduce, "gradients", replicas,
                             static_cast<double>(gradients_->shard_bytes()));
  }
}

DataParallelMaker MakeSharded(const Sharding& sharding) {
  return [sharding](DataParallelInputs inputs) {
    return std::make_unique<Sharded>(std::move(inputs), sharding);
  };
}

}  // namespace lockstep
