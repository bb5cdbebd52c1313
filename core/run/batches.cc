#include "core/run/batches.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

TraceEvent LoadEvent(const RenderedBatch& rendered) {
  return {.name = "load",
          .track = TraceTrack::kData,
          .start_nanos = rendered.begin_nanos,
          .duration_nanos = rendered.end_nanos - rendered.begin_nanos,
          .micro_batch = rendered.micro_batch,
          .detail = absl::StrCat("of step ", rendered.step)};
}

}  // namespace

Batch HostBatches::Deliver(Batch batch) {
  if (computes_here()) return batch;
  const auto copy = [this](const Tensor& host) {
    Tensor device = kernels_.EmptyLike(host);
    kernels_.CopyFromHost(host.raw(), device);
    return device;
  };
  return {.inputs = copy(batch.inputs), .targets = copy(batch.targets)};
}

PrefetchedBatches::PrefetchedBatches(const TrainingRun& run, Rank& rank, int64_t first_step,
                                     std::vector<int64_t> micro_batches)
    : timer_(rank.timer), host_(rank.kernels) {
  if (micro_batches.empty()) return;
  prefetcher_.emplace(
      run.dataset, *run.sampler, host_.allocator(),
      PrefetchOptions{.first_step = first_step,
                      .end_step = run.settings.steps,
                      .micro_batches = std::move(micro_batches),
                      .rendered = [&trace = rank.trace](const RenderedBatch& rendered) {
                        trace.Add(LoadEvent(rendered));
                      }});
}

Batch PrefetchedBatches::Next() {
  CHECK(prefetcher_.has_value()) << "this rank takes no micro-batches";
  StepTimer::Scope scope(timer_, Phase::kData);
  absl::StatusOr<Prefetcher::Item> item = prefetcher_->Next();
  ThrowIfError(item.status());
  return host_.Deliver(std::move(item)->batch);
}

}  // namespace lockstep
