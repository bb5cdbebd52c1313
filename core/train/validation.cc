#include "core/train/validation.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/comm/host_numbers.h"
#include "core/train/host_batches.h"

namespace lockstep {

ValidationResult Validate(const Run& run, Rank& rank, Strategy& strategy) {
  const int64_t size = run.settings.validation.batch_size;
  const int64_t batches = run.sampler->ValidationBatches(size, run.settings.validation.batches);
  Communicator& ranks = rank.mesh.data();
  HostBatches host(rank.kernels);
  std::vector<double> sums(2 * batches, 0.0);
  int64_t samples = 0;
  for (int64_t i = 0; i < batches || i % ranks.size() != 0; ++i) {
    std::vector<SampleKey> keys(size, SampleKey{.index = kNoSample});
    if (i < batches) keys = run.sampler->ValidationKeys(i, size);
    samples += std::count_if(keys.begin(), keys.end(),
                             [](const SampleKey& key) { return key.index != kNoSample; });
    if (i % ranks.size() != ranks.rank()) continue;
    Batch batch = EmptyBatch(*run.dataset, size, host.allocator(), MemoryClass::kActivations);
    ThrowIfError(run.dataset->Fill(Split::kValidation, keys, batch));
    const EvaluationSums evaluated = strategy.Evaluate(host.Deliver(std::move(batch)));
    if (i >= batches) continue;
    sums[2 * i] = evaluated.loss;
    sums[2 * i + 1] = static_cast<double>(evaluated.correct);
  }
  // Along pp, those that have no part in the loss add zeros.
  for (Communicator* axis : {&ranks, &rank.mesh.pp()}) {
    ThrowIfError(AllReduceNumbers(*axis, absl::MakeSpan(sums), ReduceOp::kSum, "validation"));
  }
  ValidationResult result;
  for (int64_t i = 0; i < batches; ++i) {
    result.loss += sums[2 * i];
    result.accuracy += sums[2 * i + 1];
  }
  const auto targets = static_cast<double>(samples * run.dataset->target_shape().elements());
  result.loss /= targets;
  result.accuracy /= targets;
  return result;
}

}  // namespace lockstep
