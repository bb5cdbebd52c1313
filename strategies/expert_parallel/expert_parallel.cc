#include "strategies/expert_parallel/expert_parallel.h"

#include <algorithm>
#include <bit>       // std::has_single_bit
#include <iterator>  // std::ssize
#include <utility>

#include "core/base/status.h"
#include "strategies/context_parallel/context_ranks.h"
#include "strategies/recompute/forwards_again.h"

namespace lockstep {
namespace {

bool IsPowerOfTwo(int64_t count) { return std::has_single_bit(static_cast<uint64_t>(count)); }

// What the ranks of a group have of the batch: tokens of as many ranks along cp, and shards of as
// many along dp.
struct Sources {
  explicit Sources(const MeshShape& mesh)
      : tokens(std::min(mesh.ep, mesh.cp)), shards(std::max(1, mesh.ep / mesh.cp)) {}
  int tokens, shards;
};

// Sums gradients over ranks that have the same experts and other tokens.
class SameExperts : public GradientGroup {
 public:
  explicit SameExperts(Communicator& ranks) : ranks_(ranks) {}
  int size() const override { return ranks_.size(); }
  void SumGradient(const Tensor& gradient) override {
    ThrowIfError(ranks_.AllReduce(gradient, gradient, ReduceOp::kSum, kTokenGradients).Wait());
  }

 private:
  Communicator& ranks_;
};

// The mixtures of experts that a rank runs, with their blocks.
struct PlacedExperts {
  const Block& block;
  const ExpertsLayer& layer;
};
std::vector<PlacedExperts> ExpertsOf(const LocalModel& local_model) {
  std::vector<PlacedExperts> all;
  for (const BlockRange& blocks : local_model.ranges()) {
    for (int64_t i = blocks.begin; i < blocks.end; ++i) {
      Block& block = *local_model.model().blocks[i];
      for (Module* module : block.Modules()) {
        if (const auto* layer = dynamic_cast<ExpertsLayer*>(module)) all.push_back({block, *layer});
      }
    }
  }
  return all;
}

}  // namespace

absl::Status CheckExpertParallelModel(const Settings& settings, const Model& model) {
  const MeshShape& mesh = settings.mesh;
  if (mesh.ep == 1) return absl::OkStatus();
  if (model.experts == 0) {
    return InvalidArgument("mesh.ep is ", mesh.ep,
                           ", but this model has no experts to divide; leave it out");
  }
  if (model.experts % mesh.ep != 0) {
    return InvalidArgument("mesh.ep is ", mesh.ep, ", but model.experts.count is ", model.experts,
                           ", and each rank along ep has as many experts; change mesh.ep, or the "
                           "number of experts");
  }
  const Sources sources(mesh);
  const bool nests = mesh.ep % mesh.cp == 0 || mesh.cp % mesh.ep == 0;
  const bool sums_nodes = (IsPowerOfTwo(sources.tokens) || sources.tokens == mesh.cp) &&
                          (IsPowerOfTwo(sources.shards) || sources.shards == mesh.data_ranks());
  if (nests && sums_nodes) return absl::OkStatus();
  return InvalidArgument("mesh.ep is ", mesh.ep, " with mesh.dp x mesh.cp = ", mesh.dp, " x ",
                         mesh.cp,
                         ": an expert's rank would sum tokens and shards that are no node of their "
                         "tree; use a power of two that divides mesh.cp or is a multiple of it, or "
                         "mesh.ep=",
                         mesh.dp * mesh.cp);
}

ExpertParallel::ExpertParallel(const StrategyInputs& inputs)
    : mesh_(inputs.rank.mesh),
      settings_(inputs.settings),
      time_(inputs.targets_per_sample),
      group_(settings_.mesh.ep == 1 ? nullptr : std::make_unique<ExpertRanks>(mesh_.ep())) {}

Model ExpertParallel::Divide(Model model, ContextParallel::Sums sums, ShardAssignment assignment) {
  if (group_ == nullptr) return model;
  model.DivideExperts(*group_);
  const MeshShape& shape = settings_.mesh;
  if (sums == ContextParallel::Sums::kHere && shape.ep < shape.cp) {
    auto ranks = mesh_.cp().SplitBy(
        [&](int rank) {
          return Communicator::Choice{rank % shape.ep, rank};
        },
        "same_experts");
    ThrowIfError(ranks.status());
    context_ = *std::move(ranks);
    same_experts_ = std::make_unique<SameExperts>(*context_);
  }
  const Sources sources(shape);
  // A rank's shards are summed before those of other ranks, where it has them consecutively. Token
  // leaves make one tree with shards only where each shard has a power of two of them.
  const bool shards_wait =
      assignment == ShardAssignment::kConsecutive && settings_.shards_of_rank() > 1;
  const int64_t leaves = settings_.cut.tokens / shape.cp * sources.tokens;
  const bool are_apart = shards_wait || !IsPowerOfTwo(leaves);
  for (Parameter* parameter : model.Parameters()) {
    if (!parameter->is_of_experts) continue;
    divided_.insert(parameter->name);
    parameter->context_over = same_experts_.get();
    parameter->shard_sources = are_apart ? sources.shards : 1;
    parameter->token_sources = shape.ep / parameter->shard_sources;
  }
  return model;
}

std::vector<TrainedTensor> ExpertParallel::Prepare(std::vector<TrainedTensor> trained,
                                                   Divided divided) const {
  if (group_ == nullptr || divided != Divided::kNothing) return trained;
  for (TrainedTensor& tensor : trained) {
    if (!divided_.contains(tensor.name)) tensor.in_norm &= group_->index() == 0;
  }
  return trained;
}

std::vector<Communicator*> ExpertParallel::holders(Divided divided) const {
  if (group_ == nullptr || divided != Divided::kNothing) return {};
  return {&mesh_.ep()};
}

// Theory: each row that has chosen an expert of another rank goes there and back, and so do their
// gradients where they are needed.
void ExpertParallel::AddTraffic(const LocalModel& local_model, int micro_batches,
                                Checkpointing checkpointing, CostPrediction& prediction) const {
  if (group_ == nullptr) return;
  const Model& model = local_model.model();
  const double others = RingFraction(settings_.mesh.ep);
  const int64_t all = settings_.micro_batches_of_rank();
  double counts = 0, forward = 0, backward = 0;  // bytes
  for (const auto& [block, layer] : ExpertsOf(local_model)) {
    const int again = ForwardsAgain(model, block, OperationOf(model, layer.name()));
    const GradientNeeds needs = NeedsOf(model, layer.name());
    const double row = static_cast<double>(layer.width() * SizeOf(settings_.precision.compute));
    const std::vector<ExpertRanks::Rows> known = group_->MeanRows(layer.name());
    for (int64_t i = 0; i < all; ++i) {
      const double tokens =
          static_cast<double>(settings_.samples_of(i) * time_) / settings_.mesh.cp;
      const double even = others * tokens * static_cast<double>(layer.chosen());
      const ExpertRanks::Rows rows =
          std::ssize(known) == all ? known[i] : ExpertRanks::Rows{.sent = even, .received = even};
      const int forwards =
          Forwards(static_cast<int>(i % micro_batches), micro_batches, checkpointing) + again;
      forward += forwards * row * (rows.sent + rows.received);
      backward += row * ((needs.of_output ? rows.sent : 0) + (needs.of_input ? rows.received : 0));
      counts += others * forwards *
                static_cast<double>(layer.experts() * settings_.cut.tokens / settings_.mesh.cp *
                                    static_cast<int64_t>(sizeof(int64_t)));
    }
  }
  const auto add = [&](Operation operation, const char* label, double bytes) {
    if (bytes > 0) prediction.AddTraffic(operation, label, bytes);
  };
  add(Operation::kAllToAll, kExpertCounts, counts);
  add(Operation::kSend, kExpertRows, forward);
  add(Operation::kSend, kExpertRowGradients, backward);
  if (context_ == nullptr) return;
  int64_t gradients = 0;
  for (const Parameter* use : local_model.uses()) {
    if (use->context_over == same_experts_.get()) {
      gradients += use->shard_sources * use->held_shape().elements();
    }
  }
  prediction.AddCollective(Operation::kAllReduce, kTokenGradients, context_->size(),
                           static_cast<double>(gradients * settings_.shards_of_rank() *
                                               SizeOf(settings_.precision.reduce)));
}

}  // namespace lockstep
