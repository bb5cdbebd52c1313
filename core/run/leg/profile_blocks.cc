#include "core/run/leg/profile_blocks.h"

#include <algorithm>
#include <iterator>  // std::ssize
#include <limits>
#include <utility>

#include "absl/types/span.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/comm/host_numbers.h"
#include "core/run/leg/batches.h"
#include "core/run/strategy/replica.h"

namespace lockstep {
namespace {

constexpr int64_t kEnoughNanos = 1'000'000'000;
constexpr int kMostPasses = 20;

// What the hooks of a block see in one pass: clocks at its ends, and the memory of activations.
struct Marks {
  int64_t forward_begin = 0, forward_end = 0, backward_begin = 0, backward_end = 0;  // nanos
  int64_t bytes_before = 0, bytes_after = 0;
};

// Called where a block begins and ends. The CPU's kernels are done when they return.
void Mark(Block& block, const Allocator& allocator, Marks& marks) {
  const auto bytes = [&allocator] { return allocator.books().live(MemoryClass::kActivations); };
  block.AddHooks({.before_forward =
                      [&marks, bytes](Pass&) {
                        marks.bytes_before = bytes();
                        marks.forward_begin = NowNanos();
                      },
                  .after_forward =
                      [&marks, bytes](Pass&) {
                        marks.forward_end = NowNanos();
                        marks.bytes_after = bytes();
                      },
                  .before_backward = [&marks] { marks.backward_begin = NowNanos(); },
                  .after_backward = [&marks] { marks.backward_end = NowNanos(); }});
}

Batch SampleBatch(const Dataset& dataset, int64_t samples, Allocator& allocator) {
  const Batch batch = EmptyBatch(dataset, samples, allocator, MemoryClass::kWorkspace);
  std::vector<SampleKey> keys(samples);
  for (int64_t i = 0; i < samples; ++i) keys[i].index = i % dataset.size(Split::kTrain);
  ThrowIfError(dataset.Fill(Split::kTrain, keys, batch));
  return batch;
}

int64_t ParameterBytes(const Block& block, const Settings& settings) {
  const Precision& precision = settings.precision;
  const int64_t owners =
      settings.optimizer.state_bytes_per_parameter() + (precision.has_masters() ? 4 : 0);
  int64_t bytes = 0;
  for (const Parameter* parameter : block.Parameters()) {
    int64_t of_each = SizeOf(precision.compute);
    if (parameter->trainable) of_each += SizeOf(precision.reduce);
    // A tied parameter is the optimizer's where its owner is.
    if (parameter->trainable && parameter->tied_to == nullptr) of_each += owners;
    bytes += parameter->held_shape().elements() * of_each;
  }
  return bytes;
}

}  // namespace

std::vector<BlockProfile> ProfileBlocks(Rank& rank, Model model, const Settings& settings,
                                        const Dataset& dataset) {
  // Neither its times nor its trace are the run's.
  StepTimer timer({});
  Trace trace(rank.rank, TraceWindow{});
  Rank apart(rank.kernels, rank.mesh, timer, trace);
  HostBatches host(rank.kernels, {.leaves = settings.cut.tokens});
  const Batch batch =
      host.Deliver(SampleBatch(dataset, settings.largest_micro_batch(), host.allocator()));
  Replica replica(apart, std::move(model), settings, dataset.target_shape().elements());
  replica.AllocateGradients();
  const auto& blocks = replica.model().blocks;
  std::vector<Marks> marks(blocks.size());
  std::vector<BlockProfile> profiles(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    Mark(*blocks[i], rank.allocator(), marks[i]);
    profiles[i].nanos = std::numeric_limits<int64_t>::max();
    profiles[i].parameter_bytes = ParameterBytes(*blocks[i], settings);
  }

  const int64_t begin = NowNanos();
  for (int pass = 0; pass < 3 || (pass < kMostPasses && NowNanos() - begin < kEnoughNanos);
       ++pass) {
    replica.Clear(1);
    replica.ForwardBackward(/*step=*/0, /*micro_batch=*/0, batch);
    for (size_t i = 0; pass > 0 && i < blocks.size(); ++i) {
      const Marks& seen = marks[i];
      const bool is_last = i + 1 == blocks.size();
      const int64_t nanos = is_last ? seen.backward_end - seen.forward_begin
                                    : seen.forward_end - seen.forward_begin +
                                          (seen.backward_end - seen.backward_begin);
      profiles[i].nanos = std::min(profiles[i].nanos, nanos);
      profiles[i].activation_bytes = std::max<int64_t>(0, seen.bytes_after - seen.bytes_before);
    }
  }
  return profiles;
}

std::vector<BlockProfile> ProfilesOfRun(const TrainingRun& run, Rank& rank) {
  if (!run.strategy.needs_profiles(run.config, run.settings)) return {};
  absl::StatusOr<Model> model = run.make_model(run.config, *run.dataset);
  ThrowIfError(model.status());
  std::vector<BlockProfile> profiles(model->blocks.size());
  if (rank.rank == 0) profiles = ProfileBlocks(rank, *std::move(model), run.settings, *run.dataset);
  std::vector<int64_t> numbers;
  for (const BlockProfile& block : profiles) {
    numbers.insert(numbers.end(), {block.nanos, block.activation_bytes, block.parameter_bytes});
  }
  ThrowIfError(BroadcastNumbers(rank.mesh.world(), absl::MakeSpan(numbers), 0, "costs of blocks"));
  for (size_t i = 0; i < profiles.size(); ++i) {
    profiles[i] = {.nanos = numbers[3 * i],
                   .activation_bytes = numbers[3 * i + 1],
                   .parameter_bytes = numbers[3 * i + 2]};
  }
  return profiles;
}

}  // namespace lockstep
