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
      await_tied_(std::move(inputs.await_tied)),
      local_model_(inputs.rank, std::move(inputs.model), inputs.MakeLayout(sharding.divided),
                   inputs.rank.rank, settings_, inputs.targets_per_sample,
                   [this](Model& made, const ModelLayout& layout, int place) {
                     MakeValues(made, layout, place);
                   }) {}

void Sharded::MakeValues(Model& model, const ModelLayout& layout, int place) {
  const std::vector<Parameter*> parameters = model.Parameters();
  // They travel whole, and stay.
  for (const size_t i : layout.TiedAcross(place)) {
    parameters[i]->gradient = kernels_.Empty(
        parameters[i]->held_shape(), parameters[i]->gradient_dtype, MemoryClass::kGradients);
  }
  residency_ = std::make_unique<Residency>(
      model, layout, place, groups_, settings_.precision, unshard_,
      Residency::BackwardHooks{.enter = [](FsdpUnit& unit) { unit.gradients().Materialize(); },
                               .leave = [this](FsdpUnit& unit) { Leave(unit); }},
      kernels_, settings_.seed);
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
    for (const TrainedTensor& tensor : unit->trained()) trained[tensor.name] = tensor;
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

void Sharded::BeginStep(double loss_scale) {
  local_model_.Clear(loss_scale);
  ranges_to_come_.clear();
  for (const auto& unit : residency_->units()) {
    ranges_to_come_.push_back(static_cast<int>(
        std::count_if(local_model_.ranges().begin(), local_model_.ranges().end(),
                      [&](const BlockRange& range) { return residency_->Uses(range, *unit); })));
  }
}

int& Sharded::RangesToCome(const FsdpUnit& unit) {
  const auto& units = residency_->units();
  const auto at = std::find_if(units.begin(), units.end(),
                               [&unit](const auto& other) { return other.get() == &unit; });
  return ranges_to_come_[at - units.begin()];
}

BackwardHooks Sharded::Completing(const BlockRange& /*stage*/) {
  completing_ = sums_in_backward_;
  return {};
}

void Sharded::Leave(FsdpUnit& unit) {
  if (!completing_) return;
  RangesToCome(unit) = 0;
  Reduce(unit);
}

void Sharded::Completed(const BlockRange& stage) {
  completing_ = false;
  for (const auto& unit : residency_->units()) {
    if (!unit->is_trained() || !residency_->Uses(stage, *unit)) continue;
    int& to_come = RangesToCome(*unit);
    if (to_come == 0 || --to_come > 0) continue;
    unit->gradients().Materialize();  // where no backward has reached it
    Reduce(*unit);
  }
}

void Sharded::Reduce(FsdpUnit& unit) {
  for (const FsdpUnit::Member& member : unit.members()) await_tied_(*member.parameter);
  unit.CompleteGradients();
  sums_.Begin(unit);
}

void Sharded::FinishGradients() {
  sums_.Await();
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

int64_t Sharded::PeakGradientBytes() const {
  const bool stays_whole = groups_.divided == Divided::kOptimizerState;
  if (sums_in_backward_ && settings_.cut.micro_batches == 1 && !stays_whole) {
    return lockstep::PeakGradientBytes(residency_->Needs(local_model_.ranges()[0]),
                                       GradientSums::kUnderWay);
  }
  int64_t bytes = 0;
  for (const auto& unit : residency_->units()) {
    bytes += unit->tied_bytes();
    if (unit->is_trained() && !stays_whole) bytes += unit->gradients().whole().bytes();
  }
  return bytes;
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
  return bytes * static_cast<double>(settings_.cut.micro_batches);
}

void Sharded::AddCosts(double forwards, CostPrediction& prediction) const {
  prediction.memory = local_model_.Predict().memory;
  prediction.AddMemory(MemoryClass::kParameters, PeakWholeBytes(forwards > 1));
  prediction.AddMemory(MemoryClass::kGradients, PeakGradientBytes());

  prediction.AddTraffic(Operation::kAllGather, "parameters", GatherBytes(forwards));
  double gradients = 0;  // bytes of the shards
  for (const auto& unit : residency_->units()) {
    if (unit->is_trained()) gradients += static_cast<double>(unit->gradients().shard().bytes());
  }
  const int ranks = groups_.shards.size(), replicas = groups_.replicas.size();
  prediction.AddCollective(Operation::kReduceScatter, "gradients", ranks, ranks * gradients);
  if (replicas > 1) {
    prediction.AddCollective(Operation::kAllReduce, "gradients", replicas, gradients);
  }
}

DataParallelMaker MakeSharded(const Sharding& sharding) {
  return [sharding](DataParallelInputs inputs) {
    return std::make_unique<Sharded>(std::move(inputs), sharding);
  };
}

}  // namespace lockstep
