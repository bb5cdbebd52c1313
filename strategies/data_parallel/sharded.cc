#include "strategies/data_parallel/sharded.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "glog/logging.h"
#include "strategies/data_parallel/sharded_gradients.h"

namespace lockstep {
namespace {

// The ranks next to this one that keep units together; null where all do.
std::unique_ptr<Communicator> SplitNeighbours(Communicator& ranks, std::optional<int> neighbours) {
  if (!neighbours || *neighbours == ranks.size()) return nullptr;
  auto group = ranks.SplitBy(
      [&](int rank) {
        return Communicator::Choice{rank / *neighbours, rank};
      },
      "neighbours");
  ThrowIfError(group.status());
  return *std::move(group);
}

// The ranks that hold shards of the same experts; none where all ranks do.
std::optional<ShardGroups> ExpertGroups(const DataParallelInputs& inputs, const ShardGroups& all) {
  const Mesh& mesh = inputs.rank.mesh;
  const MeshShape& shape = mesh.shape();
  if (shape.ep == 1) return std::nullopt;
  // Ranks along cp that have summed a shard already have the same sums where they have the same
  // experts.
  return ShardGroups{.shards = mesh.expert_dp(),
                     .neighbours = all.neighbours.size() == 1 ? all.neighbours : mesh.expert_dp(),
                     .replicas = mesh.replicas(),
                     .divided = all.divided,
                     .contributes = inputs.sums_tokens || mesh.cp().rank() < shape.ep};
}

class Sharded : public DataParallel {
 public:
  Sharded(DataParallelInputs inputs, const Sharding& sharding)
      : settings_(inputs.settings),
        neighbours_(SplitNeighbours(inputs.rank.mesh.dp_cp(), sharding.neighbours)),
        groups_{.shards = inputs.rank.mesh.dp_cp(),
                .neighbours = neighbours_ != nullptr ? *neighbours_ : inputs.rank.mesh.dp_cp(),
                .replicas = inputs.rank.mesh.replicas(),
                .divided = sharding.divided,
                .contributes = inputs.sums_tokens || inputs.rank.mesh.cp().rank() == 0},
        experts_(ExpertGroups(inputs, groups_)),
        unshard_(sharding.unshard),
        // Where the rank has one stage, what a completing backward leaves behind is summed while
        // it goes on; else behind it.
        sums_in_backward_(inputs.layout.blocks[inputs.rank.mesh.coordinate().pp].size() == 1 &&
                          !inputs.halves_backwards),
        backwards_(std::move(inputs.backwards)),
        local_model_(
            inputs.rank, std::move(inputs.model), inputs.MakeLayout(sharding.divided),
            inputs.rank.rank, settings_, inputs.targets_per_sample,
            [this, &kernels = inputs.rank.kernels](Model& model, const ModelLayout& layout,
                                                   int place) {
              const ShardGroups* experts = experts_ ? &*experts_ : nullptr;
              residency_ = std::make_unique<Residency>(model, layout, place, groups_, experts,
                                                       settings_.precision, unshard_, kernels,
                                                       settings_.seed);
              gradients_ = std::make_unique<ShardedGradients>(
                  model, layout, place, groups_, experts, settings_.precision.reduce,
                  settings_.shards_of_rank(), sums_in_backward_, kernels,
                  ShardedGradients::Hooks{
                      .end_shard = [this](Parameter& use) { return local_model_.EndShard(use); },
                      .hand_over =
                          [this](const Parameter& use, const Tensor& held) {
                            local_model_.HandOverGradient(use, held);
                          }});
            }) {
    if (groups_.divided == Divided::kOptimizerState) local_model_.AllocateGradients();
  }

  LocalModel& local_model() override { return local_model_; }
  const LocalModel& local_model() const override { return local_model_; }

  // Its shard, in the dtype that is computed with.
  Tensor ValuesOf(const Parameter& parameter) const override {
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
  Tensor GradientOf(const Parameter& use) const override { return gradients_->Held(use); }

  std::vector<TrainedTensor> Trained() const override {
    LocalModel::TrainedByName trained;
    for (const auto& unit : residency_->units()) {
      if (!unit->is_trained()) continue;
      for (size_t i = 0; i < unit->members().size(); ++i) {
        TrainedTensor tensor = unit->held()[i];
        tensor.gradient = gradients_->Held(*unit->members()[i].parameter);
        trained[tensor.name] = tensor;
      }
    }
    return local_model_.Trained(trained);
  }

  std::vector<StateTensor> State() const override {
    NamedTensors values;
    for (const auto& unit : residency_->units()) {
      for (const TrainedTensor& held : unit->held()) values[held.name] = held.value;
    }
    return local_model_.State(std::move(values));
  }

  void RoundMasters() override {
    for (const auto& unit : residency_->units()) unit->parameters().RoundMaster();
  }
  void ShareValues() override {
    GatherWholes([](const Parameter&) { return true; });
  }
  void ShareUpdates() override {
    GatherWholes([](const Parameter& parameter) { return parameter.trainable; });
  }

  void BeginStep(double loss_scale) override { local_model_.Clear(loss_scale); }
  BackwardHooks Completing(const BlockRange& /*stage*/, int64_t /*shard*/) override {
    gradients_->Completing();
    return {};
  }
  void Completed(const BlockRange& stage, int64_t /*shard*/) override {
    gradients_->Completed(stage);
  }
  // Keeps nothing whole from here on.
  void FinishGradients() override {
    gradients_->Await();
    residency_->EndStep();
  }

  std::vector<Communicator*> holders() const override { return {&groups_.shards}; }

  void AddCosts(double forwards, CostPrediction& prediction) const override {
    prediction.memory = local_model_.Predict().memory;
    prediction.AddMemory(MemoryClass::kParameters, PeakWholeBytes(forwards > 1));
    prediction.AddMemory(MemoryClass::kGradients,
                         gradients_->partial_bytes() + gradients_->PeakWholeBytes(backwards_));

    prediction.AddTraffic(Operation::kAllGather, "parameters", GatherBytes(forwards));
    gradients_->AddTraffic(prediction);
  }

 private:
  using Choice = std::function<bool(const Parameter&)>;

  bool divides_parameters() const { return groups_.divided == Divided::kParameters; }

  // The parameters of units and of tied copies, which have no unit here, for which `chosen` says
  // so.
  std::vector<FlatParameters*> FlatsOf(const Choice& chosen) const {
    std::vector<FlatParameters*> flats;
    for (const auto& unit : residency_->units()) {
      if (chosen(*unit->members().front().parameter)) flats.push_back(&unit->parameters());
    }
    for (const TiedCopies& tied : residency_->tied_copies()) {
      if (chosen(*tied.owner)) flats.push_back(tied.parameters.get());
    }
    return flats;
  }
  int64_t WholeBytes(const Choice& chosen) const {
    int64_t bytes = 0;
    for (const FlatParameters* flat : FlatsOf(chosen)) bytes += flat->whole().bytes();
    return bytes;
  }

  // Where parameters stay whole: brings them up to date.
  void GatherWholes(const Choice& chosen) {
    if (divides_parameters()) return;
    const std::vector<FlatParameters*> flats = FlatsOf(chosen);
    for (FlatParameters* flat : flats) flat->GatherUpdates();
    for (FlatParameters* flat : flats) flat->AwaitWhole();
  }

  // Bytes of parameters that exist at one time beside what is kept.
  int64_t PeakWholeBytes(bool recomputes) const {
    int64_t peak = 0;
    if (!divides_parameters()) return peak;
    if (unshard_ == Unshard::kStep) return WholeBytes([](const Parameter&) { return true; });
    for (const BlockRange& range : local_model_.ranges()) {
      peak = std::max(peak, PeakParameterBytes(residency_->Needs(range), recomputes));
    }
    return peak;
  }

  // Sent by this rank to gather all units once for which `chosen` says so.
  double GatherBytesOnce(const Choice& chosen) const {
    double bytes = 0;
    for (const FlatParameters* flat : FlatsOf(chosen)) {
      bytes +=
          RingFraction(flat->groups().shards.size()) * static_cast<double>(flat->whole().bytes());
    }
    return bytes;
  }

  // Sent by this rank in a step to gather what its passes use.
  double GatherBytes(double forwards) const {
    if (!divides_parameters()) {  // what the optimizer has updated
      return GatherBytesOnce([](const Parameter& p) { return p.trainable; });
    }
    if (unshard_ == Unshard::kStep) return GatherBytesOnce([](const Parameter&) { return true; });
    double bytes = 0;
    for (const BlockRange& range : local_model_.ranges()) {
      for (const UnitNeeds& needs : residency_->Needs(range)) {
        // The first forward gathers a unit from all shards. Until its backward is over, what the
        // neighbours keep is enough.
        const double from_shards = RingFraction(needs.shards);
        const double from_neighbours = RingFraction(needs.neighbours);
        const auto whole = static_cast<double>(needs.whole);
        const double again =
            needs.in_backward ? forwards * from_neighbours : (forwards - 1) * from_shards;
        bytes += whole * (from_shards + again);
      }
    }
    return bytes * static_cast<double>(settings_.micro_batches_of_rank());
  }

  const Settings& settings_;
  std::unique_ptr<Communicator> neighbours_;  // null: all that hold shards
  const ShardGroups groups_;
  const std::optional<ShardGroups> experts_;  // of the units of experts that ranks divide
  const Unshard unshard_;
  const bool sums_in_backward_;
  const std::vector<StageBackward> backwards_;  // of a step
  // These two hang on the local model's blocks.
  std::unique_ptr<Residency> residency_;
  std::unique_ptr<ShardedGradients> gradients_;
  LocalModel local_model_;
};

}  // namespace

DataParallelMaker MakeSharded(const Sharding& sharding) {
  return [sharding](DataParallelInputs inputs) {
    return std::make_unique<Sharded>(std::move(inputs), sharding);
  };
}

}  // namespace lockstep
