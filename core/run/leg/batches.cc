#include "core/run/leg/batches.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/base/token_order.h"
#include "glog/logging.h"

namespace lockstep {

TokenOrder TokensOf(const Settings& settings, const Rank& rank) {
  const Communicator& context = rank.mesh.cp();
  return {.leaves = settings.cut.tokens, .runs = context.size(), .run = context.rank()};
}

Tensor HostBatches::InOrderOfLeaves(const Tensor& tokens) {
  TokenOrder order = tokens_;
  order.samples = tokens.shape()[0];
  order.time = tokens.shape()[1];
  const Tensor ordered =
      Tensor::Empty(allocator(), {order.held_leaves() * order.samples, order.leaf_time()},
                    tokens.dtype(), MemoryClass::kActivations);
  const int32_t* from = tokens.data<int32_t>();
  int32_t* to = ordered.data<int32_t>();
  const int64_t end = order.first_leaf() + order.held_leaves();
  for (int64_t leaf = order.first_leaf(); leaf < end; ++leaf) {
    for (int64_t sample = 0; sample < order.samples; ++sample) {
      const int32_t* row = from + sample * order.time;
      to = std::copy_n(row + order.FirstChunk(leaf), order.chunk(), to);
      to = std::copy_n(row + order.SecondChunk(leaf), order.chunk(), to);
    }
  }
  return ordered;
}

Batch HostBatches::Deliver(Batch batch) {
  if (tokens_.leaves > 1) {
    batch.inputs = InOrderOfLeaves(batch.inputs);
    batch.targets = InOrderOfLeaves(batch.targets);
  }
  batch.inputs = kernels_.Upload(batch.inputs);
  batch.targets = kernels_.Upload(batch.targets);
  return batch;
}

PrefetchedBatches::PrefetchedBatches(const TrainingRun& run, Rank& rank, int64_t first_step,
                                     int64_t end_step, std::vector<int64_t> micro_batches)
    : timer_(rank.timer),
      host_(rank.kernels, TokensOf(run.settings, rank)),
      is_on_gpu_(run.device == DeviceType::kCuda) {
  if (micro_batches.empty()) return;
  prefetcher_.emplace(
      run.dataset, *run.sampler, host_.allocator(),
      PrefetchOptions{.first_step = first_step,
                      .end_step = end_step,
                      .micro_batches = std::move(micro_batches),
                      .rendered = [&trace = rank.trace](const RenderedBatch& rendered) {
                        trace.Add({.name = "load",
                                   .track = TraceTrack::kData,
                                   .start_nanos = rendered.begin_nanos,
                                   .duration_nanos = rendered.end_nanos - rendered.begin_nanos,
                                   .micro_batch = rendered.micro_batch,
                                   .detail = absl::StrCat("of step ", rendered.step)});
                      }});
}

Batch PrefetchedBatches::Next() {
  CHECK(prefetcher_.has_value()) << "this rank takes no micro-batches";
  StepTimer::Scope scope(timer_, Phase::kData);
  absl::StatusOr<Batch> batch = ahead_.has_value() ? *std::move(ahead_) : Fetch();
  ahead_.reset();
  ThrowIfError(batch.status());
  return *std::move(batch);
}

void PrefetchedBatches::FetchAhead() {
  if (!is_on_gpu_ || !prefetcher_.has_value()) return;
  StepTimer::Scope scope(timer_, Phase::kData);
  CHECK(!ahead_.has_value()) << "once a step";
  // What goes wrong is the next step's, as is the end of the data.
  try {
    ahead_ = Fetch();
  } catch (const StatusException& error) {
    ahead_ = error.status();
  }
}

absl::StatusOr<Batch> PrefetchedBatches::Fetch() {
  LS_ASSIGN_OR_RETURN(Prefetcher::Item item, prefetcher_->Next());
  return host_.Deliver(std::move(item.batch));
}

}  // namespace lockstep
