#include "core/run/strategy/micro_batch_statistics.h"

#include <iterator>  // std::ssize

#include "core/base/status.h"
#include "core/tensor/allocator.h"

namespace lockstep {
namespace {

constexpr char kLabel[] = "statistics";

// The row of each micro-batch, by its number in the step, where the ranks of Mesh::data() lie one
// behind the other, each with its micro-batches in the order in which it trains them.
std::vector<int64_t> RowsOfMicroBatches(const MeshShape& mesh, const CutSettings& cut,
                                        ShardAssignment assignment) {
  std::vector<int64_t> rows(cut.shards * cut.micro_batches);
  int64_t row = 0;
  for (int replica = 0; replica < mesh.replicas; ++replica) {
    for (int dp = 0; dp < mesh.dp; ++dp) {
      const MeshCoordinate at = {.replicas = replica, .dp = dp};
      for (const int64_t shard : ShardsOfRank(mesh, at, cut, assignment)) {
        for (int64_t i = 0; i < cut.micro_batches; ++i) {
          rows[shard * cut.micro_batches + i] = row++;
        }
      }
    }
  }
  return rows;
}

}  // namespace

MicroBatchStatistics::MicroBatchStatistics(LocalModel& local_model, const Settings& settings,
                                           ShardAssignment assignment)
    : local_model_(local_model), settings_(settings) {
  int64_t elements = 0;
  for (const BlockRange& range : local_model.ranges()) {
    for (RunningStatistics* layer :
         local_model.StatisticsOf(range, LocalModel::Moves::kEachMicroBatch)) {
      layers_.push_back({layer, range.begin, elements});
      elements += AlignedBytes(2 * layer->held_channels() * sizeof(float)) / sizeof(float);
    }
  }
  if (layers_.empty()) return;
  row_of_ = RowsOfMicroBatches(settings.mesh, settings.cut, assignment);
  Kernels& kernels = local_model.rank().kernels;
  rows_ = kernels.Empty({std::ssize(row_of_), elements}, DType::kF32, MemoryClass::kParameters);
  kernels.Fill(rows_, 0);  // what lies between layers is sent, too
}

Tensor MicroBatchStatistics::StatisticsOf(const Layer& layer, int64_t micro_batch) const {
  return rows_.View(row_of_[micro_batch] * rows_.shape()[1] + layer.offset,
                    {2, layer.statistics->held_channels()});
}

void MicroBatchStatistics::Keep(const BlockRange& blocks, int64_t micro_batch) {
  for (Layer& layer : layers_) {
    if (layer.first_block != blocks.begin) continue;
    RunningStatistics& gathered = *layer.statistics;
    const Tensor own = StatisticsOf(layer, micro_batch);
    local_model_.rank().kernels.Copy(gathered.sums.View(0, own.shape()), own);
    layer.rows_per_sample = gathered.rows / settings_.samples_of(micro_batch);
    gathered.Clear();
  }
}

void MicroBatchStatistics::Gather(const Mesh& mesh) {
  Communicator& ranks = mesh.data();
  if (layers_.empty() || ranks.size() == 1) return;
  const int64_t elements = rows_.elements() / ranks.size();
  const Tensor own = rows_.View(ranks.rank() * elements, {elements});
  local_model_.HandOver("the batch statistics", own);
  ThrowIfError(ranks.AllGather(own, rows_, kLabel).Wait());
}

void MicroBatchStatistics::Update() {
  Kernels& kernels = local_model_.rank().kernels;
  for (const Layer& layer : layers_) {
    for (int64_t i = 0; i < std::ssize(row_of_); ++i) {
      layer.statistics->Follow(kernels, StatisticsOf(layer, i),
                               layer.rows_per_sample * settings_.samples_of(i));
    }
  }
}

void MicroBatchStatistics::AddCosts(const Mesh& mesh, CostPrediction& prediction) const {
  if (layers_.empty()) return;
  prediction.AddMemory(MemoryClass::kParameters, rows_.bytes());
  prediction.AddCollective(Operation::kAllGather, kLabel, mesh.data().size(),
                           static_cast<double>(rows_.bytes()));
}

}  // namespace lockstep
