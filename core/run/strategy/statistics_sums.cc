#include "core/run/strategy/statistics_sums.h"

#include <utility>

#include "core/base/status.h"

namespace lockstep {
namespace {

constexpr char kLabel[] = "statistics";

void SumOverRanks(Communicator& ranks, const Tensor& tensor) {
  if (ranks.size() == 1) return;
  ThrowIfError(ranks.AllReduce(tensor, tensor, ReduceOp::kSum, kLabel).Wait());
}

}  // namespace

StatisticsSums::StatisticsSums(LocalModel& local_model, const Settings& settings,
                               ShardAssignment assignment)
    : local_model_(local_model) {
  const Tensor& statistics = local_model.statistics();
  if (!statistics.defined()) return;
  Kernels& kernels = local_model.rank().kernels;
  const int64_t shards = settings.shards_of_rank();
  const bool by_round = assignment == ShardAssignment::kStrided && shards > 1;
  int64_t offset = 0;
  for (const BlockRange& range : local_model.ranges()) {
    std::vector<RunningStatistics*> layers =
        local_model.StatisticsOf(range, LocalModel::Moves::kEachStep);
    if (layers.empty()) continue;
    const int64_t elements = StatisticsElements(layers);
    Stage stage = {range.begin, std::move(layers), offset, statistics.View(offset, {elements}),
                   std::nullopt};
    if (!by_round) stage.sum.emplace(kernels, stage.sums, shards, MemoryClass::kParameters);
    stages_.push_back(std::move(stage));
    offset += elements;
  }
  if (!by_round) return;
  rounds_.emplace(
      Rounds{kernels.Empty({shards, statistics.elements()}, DType::kF32, MemoryClass::kParameters),
             ShardSum(kernels, statistics, shards, MemoryClass::kParameters)});
}

void StatisticsSums::EndShard(const BlockRange& blocks) {
  for (Stage& stage : stages_) {
    if (stage.first_block != blocks.begin) continue;
    if (rounds_) {
      const int64_t round = stage.ended * local_model_.statistics().elements();
      local_model_.rank().kernels.Copy(
          stage.sums, rounds_->sums.View(round + stage.offset, stage.sums.shape()));
    } else {
      stage.sum->Add();
    }
    ++stage.ended;
    for (RunningStatistics* layer : stage.layers) layer->Clear();
  }
}

void StatisticsSums::Sum(const Mesh& mesh) {
  if (stages_.empty()) return;
  for (Stage& stage : stages_) stage.ended = 0;
  const Tensor& statistics = local_model_.statistics();
  local_model_.HandOver("the batch statistics", rounds_ ? rounds_->sums : statistics);
  if (!rounds_) return SumOverRanks(mesh.batch(), statistics);
  SumOverRanks(mesh.dp(), rounds_->sums);
  bool is_complete = false;
  for (int64_t at = 0; !is_complete; at += statistics.elements()) {
    local_model_.rank().kernels.Copy(rounds_->sums.View(at, statistics.shape()), statistics);
    is_complete = rounds_->sum.Add();
  }
  local_model_.HandOver("the batch statistics", statistics);
  SumOverRanks(mesh.cp(), statistics);
  SumOverRanks(mesh.replicas(), statistics);
}

void StatisticsSums::AddCosts(const Mesh& mesh, CostPrediction& prediction) const {
  if (stages_.empty()) return;
  const auto add = [&](Communicator& ranks, const Tensor& tensor) {
    prediction.AddCollective(Operation::kAllReduce, kLabel, ranks.size(),
                             static_cast<double>(tensor.bytes()));
  };
  int64_t partial = 0;
  for (const Stage& stage : stages_) partial += stage.sum ? stage.sum->bytes() : 0;
  if (!rounds_) {
    add(mesh.batch(), local_model_.statistics());
  } else {
    partial += rounds_->sums.bytes() + rounds_->sum.bytes();
    add(mesh.dp(), rounds_->sums);
    for (Communicator* ranks : {&mesh.cp(), &mesh.replicas()}) {
      if (ranks->size() > 1) add(*ranks, local_model_.statistics());
    }
  }
  prediction.AddMemory(MemoryClass::kParameters, partial);
}

}  // namespace lockstep
