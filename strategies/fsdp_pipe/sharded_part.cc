#include "strategies/fsdp_pipe/sharded_part.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "glog/logging.h"

namespace lockstep {

ShardedPart::ShardedPart(PartInputs inputs, Unshard unshard)
    : kernels_(inputs.rank.kernels),
      settings_(inputs.settings),
      groups_{.shards = inputs.shards,
              .neighbours = inputs.shards,
              .replicas = inputs.rank.mesh.replicas()},
      unshard_(unshard),
      await_tied_(std::move(inputs.await_tied)),
      stage_(inputs.rank, std::move(inputs.model), inputs.stages, settings_,
             inputs.targets_per_sample,
             [this, &inputs](Model& made) { MakeValues(made, inputs.stages); }) {}

void ShardedPart::MakeValues(Model& model, const std::vector<BlockRange>& ranges) {
  AllocateTiedGradients(model, ranges);
  residency_ = std::make_unique<Residency>(
      model, ranges, groups_, settings_.precision, unshard_,
      Residency::BackwardHooks{.enter = [](FsdpUnit& unit) { unit.gradients().Materialize(); }},
      kernels_, settings_.seed);
}

// They travel whole, and stay.
void ShardedPart::AllocateTiedGradients(const Model& model, const std::vector<BlockRange>& ranges) {
  absl::flat_hash_set<const Parameter*> here;
  for (const BlockRange& range : ranges) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      for (const Parameter* parameter : model.blocks[i]->Parameters()) here.insert(parameter);
    }
  }
  for (Parameter* parameter : model.Parameters()) {
    if (parameter->tied_to == nullptr || !parameter->trainable) continue;
    if (here.contains(parameter) == here.contains(parameter->tied_to)) continue;
    parameter->gradient =
        kernels_.Empty(parameter->held_shape(), parameter->gradient_dtype, MemoryClass::kGradients);
    tied_bytes_ += parameter->gradient.bytes();
  }
}

Tensor ShardedPart::ValuesOf(const Parameter& parameter) const {
  const Parameter* owner = parameter.tied_to == nullptr ? &parameter : parameter.tied_to;
  for (const FsdpGuest& guest : residency_->guests()) {
    if (guest.owner == owner) return guest.parameters->shard();
  }
  for (const auto& unit : residency_->units()) {
    const auto& members = unit->members();
    if (members.size() == 1 && members[0].parameter == owner) return unit->parameters().shard();
  }
  LOG(FATAL) << parameter.name << " is not tied to a parameter of another rank";
}

Tensor ShardedPart::Nothing(DType dtype) const {
  return kernels_.Empty({0}, dtype, MemoryClass::kParameters);
}

std::vector<TrainedTensor> ShardedPart::Trained() const {
  absl::flat_hash_map<std::string, TrainedTensor> here;
  for (const auto& unit : residency_->units()) {
    for (const TrainedTensor& tensor : unit->trained()) here[tensor.name] = tensor;
  }
  const Precision& precision = settings_.precision;
  std::vector<TrainedTensor> trained;
  for (const Parameter* parameter : stage_.model().Parameters()) {
    if (parameter->tied_to != nullptr || !parameter->trainable) continue;
    if (const auto found = here.find(parameter->name); found != here.end()) {
      trained.push_back(found->second);
      continue;
    }
    trained.push_back({.name = parameter->name,
                       .value = Nothing(DType::kF32),
                       .gradient = Nothing(precision.reduce),
                       .decays = parameter->decays(),
                       .copy = precision.has_masters() ? Nothing(precision.compute) : Tensor()});
  }
  return trained;
}

std::vector<StateTensor> ShardedPart::State() const {
  absl::flat_hash_map<std::string, StateTensor> here;
  for (const auto& unit : residency_->units()) {
    for (const StateTensor& tensor : unit->state()) here[tensor.name] = tensor;
  }
  std::vector<StateTensor> state, frozen;
  for (const Parameter* parameter : stage_.model().Parameters()) {
    if (parameter->tied_to != nullptr) continue;
    const bool trains = parameter->trainable;
    const auto found = here.find(parameter->name);
    (trains ? state : frozen)
        .push_back(
            found != here.end()
                ? found->second
                : StateTensor{.name = parameter->name,
                              .tensor = Nothing(trains ? DType::kF32 : settings_.precision.compute),
                              .full_shape = parameter->shape,
                              .is_frozen = !trains});
  }
  for (StateTensor& tensor : frozen) state.push_back(std::move(tensor));
  for (StateTensor& tensor : stage_.StatisticsState()) {
    tensor.is_writer &= groups_.shards.rank() == 0;
    state.push_back(std::move(tensor));
  }
  return state;
}

void ShardedPart::BeginStep(double loss_scale) {
  stage_.Clear(loss_scale);
  to_complete_.clear();
  for (const auto& unit : residency_->units()) {
    to_complete_.push_back(static_cast<int>(
        std::count_if(stage_.ranges().begin(), stage_.ranges().end(),
                      [&](const BlockRange& range) { return residency_->Uses(range, *unit); })));
  }
}

void ShardedPart::Completed(const BlockRange& stage) {
  for (size_t i = 0; i < to_complete_.size(); ++i) {
    FsdpUnit& unit = *residency_->units()[i];
    if (!unit.is_trained()) continue;
    if (!residency_->Uses(stage, unit) || --to_complete_[i] > 0) continue;
    for (const FsdpUnit::Member& member : unit.members()) await_tied_(*member.parameter);
    unit.gradients().Materialize();  // where no backward has reached it
    unit.CompleteGradients();
    unit.gradients().Reduce();
    under_way_.push_back(&unit);
  }
}

void ShardedPart::FinishGradients() {
  for (FsdpUnit* unit : under_way_) unit->gradients().AwaitReduced();
  under_way_.clear();
  residency_->EndStep();
}

void ShardedPart::RoundMasters() {
  for (const auto& unit : residency_->units()) unit->parameters().RoundMaster();
}

int64_t ShardedPart::PeakWholeBytes() const {
  int64_t peak = 0;
  if (unshard_ == Unshard::kPass) {
    for (const BlockRange& range : stage_.ranges()) {
      peak = std::max(peak, PeakParameterBytes(residency_->Needs(range)));
    }
    return peak;
  }
  for (const auto& unit : residency_->units()) peak += unit->parameters().whole().bytes();
  for (const FsdpGuest& guest : residency_->guests()) peak += guest.parameters->whole().bytes();
  return peak;
}

double ShardedPart::GatherBytes(double forwards) const {
  double whole = 0;
  if (unshard_ == Unshard::kStep) {
    whole = static_cast<double>(PeakWholeBytes());
  } else {
    for (const BlockRange& range : stage_.ranges()) {
      for (const UnitNeeds& needs : residency_->Needs(range)) {
        const double passes = forwards + (needs.in_backward ? 1 : 0);
        whole += passes * static_cast<double>(needs.whole);
      }
    }
    whole *= static_cast<double>(settings_.cut.micro_batches);
  }
  const double n = groups_.shards.size();
  return whole * (n - 1) / n;
}

void ShardedPart::AddCosts(double forwards, CostPrediction& prediction) const {
  const Precision& precision = settings_.precision;
  int64_t shards = 0, trained = 0, guests = 0, wholes = 0;  // elements; bytes of gradients
  for (const auto& unit : residency_->units()) {
    shards += unit->parameters().shard().elements();
    if (!unit->is_trained()) continue;
    trained += unit->parameters().shard().elements();
    wholes += unit->gradients().whole().bytes() + unit->tied_bytes();
  }
  for (const FsdpGuest& guest : residency_->guests()) {
    guests += guest.parameters->shard().elements();
  }
  const int64_t optimizer =
      settings_.optimizer.state_bytes_per_parameter() + (precision.has_masters() ? 4 : 0);
  prediction.memory = {
      {MemoryClass::kParameters, (shards + guests) * SizeOf(precision.compute) + PeakWholeBytes() +
                                     stage_.statistics_bytes()},
      {MemoryClass::kGradients, trained * SizeOf(precision.reduce) + wholes + tied_bytes_},
      {MemoryClass::kOptimizerState, trained * optimizer}};

  prediction.AddTraffic(Operation::kAllGather, "parameters", GatherBytes(forwards));
  const double n = groups_.shards.size();
  prediction.AddTraffic(Operation::kReduceScatter, "gradients",
                        static_cast<double>(trained * SizeOf(precision.reduce)) * (n - 1));
}

PartMaker MakeShardedPart(Unshard unshard) {
  return [unshard](PartInputs inputs) {
    return std::make_unique<ShardedPart>(std::move(inputs), unshard);
  };
}

}  // namespace lockstep
