#include "core/run/leg/validation.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/comm/host_numbers.h"
#include "core/run/leg/batches.h"

namespace lockstep {

ValidationPart EvaluatePart(const TrainingRun& run, Rank& rank, Strategy& strategy) {
  const int64_t size = run.settings.validation.batch_size;
  const int64_t batches = run.sampler->ValidationBatches(size, run.settings.validation.batches);
  Communicator& ranks = rank.mesh.data();
  HostBatches host(rank.kernels, TokensOf(run.settings, rank));
  ValidationPart own;
  for (int64_t i = 0; i < batches || i % ranks.size() != 0; ++i) {
    std::vector<SampleKey> keys(size, SampleKey{.index = kNoSample});
    if (i < batches) keys = run.sampler->ValidationKeys(i, size);
    for (const SampleKey& key : keys) {
      if (key.index == kNoSample) continue;
      const auto of_sample = run.dataset->CountTargets(Split::kValidation, key);
      ThrowIfError(of_sample.status());
      own.targets += *of_sample;
    }
    if (i % ranks.size() != ranks.rank()) continue;
    Batch batch = EmptyBatch(*run.dataset, size, host.allocator(), MemoryClass::kActivations);
    ThrowIfError(run.dataset->Fill(Split::kValidation, keys, batch));
    if (rank.routing != nullptr) rank.routing->Begin(RoutedStep::Kind::kEvaluation);
    const EvaluationSums evaluated = strategy.Evaluate(host.Deliver(std::move(batch)));
    if (rank.routing != nullptr) {
      rank.routing->End(RoutedStep::Kind::kEvaluation, rank.allocator().books());
    }
    if (i >= batches) continue;
    own.sums.loss.Add(evaluated.loss);
    own.sums.correct += evaluated.correct;
  }
  return own;
}

ValidationResult SumOfParts(ValidationPart own, const Mesh& mesh) {
  auto& [loss, correct] = own.sums;
  // Along cp each rank has the sums of its tokens. Along pp, those that have no part in the loss
  // add zeros.
  for (Communicator* axis : {&mesh.batch(), &mesh.pp()}) {
    ThrowIfError(
        AllReduceNumbers(*axis, absl::MakeSpan(loss.bins()), ReduceOp::kSum, "validation"));
    ThrowIfError(
        AllReduceNumbers(*axis, absl::MakeSpan(&correct, 1), ReduceOp::kSum, "validation"));
  }
  const auto count = static_cast<double>(std::max<int64_t>(1, own.targets));
  return {.loss = loss.Total() / count, .accuracy = static_cast<double>(correct) / count};
}

ValidationResult Validate(const TrainingRun& run, Rank& rank, Strategy& strategy) {
  return SumOfParts(EvaluatePart(run, rank, strategy), rank.mesh);
}

}  // namespace lockstep
