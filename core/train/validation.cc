#include "core/train/validation.h"

#include <algorithm>
#include <vector>

#include "core/base/status.h"

namespace lockstep {

ValidationResult Validate(const Run& run, Rank& rank, Strategy& strategy) {
  const int64_t size = run.settings.validation.batch_size;
  const int64_t batches = run.sampler->ValidationBatches(size, run.settings.validation.batches);
  Communicator& ranks = rank.mesh.data();
  Tensor sums = rank.kernels.Empty({2 * batches}, DType::kF64, MemoryClass::kCommunication);
  std::vector<double> host(2 * batches, 0.0);
  int64_t samples = 0;
  for (int64_t i = 0; i < batches || i % ranks.size() != 0; ++i) {
    std::vector<SampleKey> keys(size, SampleKey{.index = kNoSample});
    if (i < batches) keys = run.sampler->ValidationKeys(i, size);
    samples += std::count_if(keys.begin(), keys.end(),
                             [](const SampleKey& key) { return key.index != kNoSample; });
    if (i % ranks.size() != ranks.rank()) continue;
    const Batch batch = EmptyBatch(*run.dataset, size, rank.allocator(), MemoryClass::kActivations);
    ThrowIfError(run.dataset->Fill(Split::kValidation, keys, batch));
    const EvaluationSums evaluated = strategy.Evaluate(batch);
    if (i >= batches) continue;
    host[2 * i] = evaluated.loss;
    host[2 * i + 1] = static_cast<double>(evaluated.correct);
  }
  rank.kernels.CopyFromHost(host.data(), sums);
  ThrowIfError(ranks.AllReduce(sums, sums, ReduceOp::kSum, "validation").Wait());
  Communicator& stages = rank.mesh.pp();
  // Those that have no part in the loss add zeros.
  ThrowIfError(stages.AllReduce(sums, sums, ReduceOp::kSum, "validation").Wait());
  rank.kernels.CopyToHost(sums, host.data());
  ValidationResult result;
  for (int64_t i = 0; i < batches; ++i) {
    result.loss += host[2 * i];
    result.accuracy += host[2 * i + 1];
  }
  const auto targets = static_cast<double>(samples * run.dataset->target_shape().elements());
  result.loss /= targets;
  result.accuracy /= targets;
  return result;
}

}  // namespace lockstep
