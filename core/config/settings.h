#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/checkpoint_files.h"
#include "core/comm/mesh_shape.h"
#include "core/comm/nccl_reductions.h"
#include "core/config/config.h"
#include "core/config/cut_settings.h"
#include "core/config/legs.h"
#include "core/config/precision.h"
#include "core/config/probe_settings.h"
#include "core/config/trace_window.h"
#include "core/kernels/attention_kernels.h"
#include "core/kernels/cpu/instruction_set.h"
#include "core/kernels/product_shapes.h"
#include "core/nn/lora_options.h"
#include "core/optim/learning_rate_schedule.h"
#include "core/optim/optimizer.h"

namespace lockstep {

struct BatchSettings {
  int64_t size = 1;  // samples of a step, over all ranks
};

struct ValidationSettings {
  bool at_start = false;   // before the first step too: what a model to adapt makes of the data
  int64_t every = 0;       // steps; 0: only at the end
  int64_t batches = 0;     // at most so many; 0: the whole split
  int64_t batch_size = 0;  // samples; 0: the largest micro-batch's
};

struct LossSettings {
  int64_t rows = 0;  // of a run of logits (core/nn/loss_in_runs.h); 0: all at once
};

// What a run does after a step whose loss is infinite or NaN, and which no loss scale skips.
enum class OnNan {
  kStop,      // it fails, before anything is saved
  kContinue,  // it goes on, and keeps no checkpoint while weights are infinite or NaN
};

// When the ranks go on that write a checkpoint.
enum class CheckpointWrites {
  kBackground,  // when they have copied their state; a thread of each writes the copy
  kStep,        // when it is on the disk: no memory for copies is needed
};

// What --resume makes of a newest checkpoint that is damaged.
enum class OnDamage {
  kGoBack,  // says so, and goes on from the newest one that is sound
  kStop,
};

struct CheckpointSettings {
  int64_t every = 0;  // steps; 0: only at the end
  int64_t keep = 2;   // of the newest; 0: none is written
  CheckpointFiles files = CheckpointFiles::kSharded;
  CheckpointWrites write = CheckpointWrites::kBackground;
  OnDamage on_damage = OnDamage::kGoBack;
};

// Who trains a step again, for the guard to compare.
enum class RepeatOn {
  kSameRank,   // each rank its own work
  kOtherRank,  // each rank the work of another
};

// What a run watches for, that no run should have.
struct GuardSettings {
  int64_t every = 0;  // steps between repetitions and comparisons of replicas; 0: none
  RepeatOn repeat_on = RepeatOn::kSameRank;
  double loss_jump = 0;  // times the mean of the losses before: stops the run; 0: nothing does
  double straggler_factor = 0;  // times what others take for the same work: a slow rank; 0: none is
  int64_t straggler_steps = 10;  // over which ranks are compared

  // Whether ranks keep the state of another rank, whose work they repeat, in a run of so many
  // steps.
  bool exchanges_ranks(int64_t steps) const {
    return every > 0 && every <= steps && repeat_on == RepeatOn::kOtherRank;
  }
};

// Everything that a configuration says about a run, but the model, the data and what belongs to one
// strategy.
struct Settings {
  int64_t steps = 1;
  // One after another; the last goes on to the last step. Empty: the run has one strategy and mesh.
  std::vector<Leg> legs = {};
  uint64_t seed = 1;
  BatchSettings batch;
  CutSettings cut;
  MeshShape mesh;
  Precision precision;
  OptimizerOptions optimizer;
  LearningRateSchedule schedule;
  double clip_norm = 0;  // 0: gradients are not clipped
  OnNan on_nan = OnNan::kStop;
  // Whether running estimates of batch normalisation move once a step, by all its micro-batches;
  // else once for each micro-batch.
  bool deferred_batch_norm = true;
  // Adapters in place of the model's own parameters; their rate and decay are in the schedule and
  // the optimizer.
  std::optional<LoraOptions> lora = {};
  LossSettings loss;
  ValidationSettings validation;
  CheckpointSettings checkpoint;
  GuardSettings guard;
  bool tensorboard = false;  // whether scalars are written for TensorBoard, too
  int64_t hash_every = 0;    // steps between the hashes of all tensors in hashes.csv; 0: none
  TraceWindow trace;
  ProbeSettings probe;
  int64_t memory_limit = 0;  // bytes a rank; 0: none
  int64_t threads = 0;       // a rank; 0: the machine's cores divided by the ranks
  InstructionSet instructions = WidestInstructionSet();  // of ranks that compute on the CPU
  double timeout_seconds = 60;                           // of communication
  NcclReductions nccl_reductions = NcclReductions::kFast;

  // How a step's global batch is cut (contract 2 of the design): in shards of equal size, each in
  // micro-batches whose sizes differ by one at most, the larger ones first.
  int64_t samples_of_shard() const { return batch.size / cut.shards; }
  // Samples of a micro-batch, by its number in the step: shard k has those from
  // k * cut.micro_batches on.
  int64_t samples_of(int64_t micro_batch) const;
  int64_t largest_micro_batch() const { return samples_of(0); }
  int64_t smallest_micro_batch() const { return samples_of(cut.micro_batches - 1); }
  // What a rank along replicas x dp trains of a step, on a mesh that divides the cut.
  int64_t shards_of_rank() const { return cut.shards / mesh.data_ranks(); }
  int64_t micro_batches_of_rank() const { return shards_of_rank() * cut.micro_batches; }
  // What computes attention on GPUs. Where the cut lets ranks divide heads or tokens, our own
  // kernels alone: cuDNN promises the same bits for the same heads and tokens only.
  AttentionKernels attention() const {
    return cut.tokens == 1 && cut.features == 1 ? precision.attention : AttentionKernels::kOwn;
  }
  // Whether libraries may order the sums of products by their shape; `experts`: of the model.
  ProductShapes product_shapes(int64_t experts) const {
    return cut.tokens == 1 && cut.features == 1 && experts == 0 ? ProductShapes::kSame
                                                                : ProductShapes::kDivided;
  }
  // Whether ranks copy their state for a checkpoint before the last step. The last one is written
  // from the state itself.
  bool copies_state() const {
    return checkpoint.write == CheckpointWrites::kBackground && checkpoint.keep > 0 &&
           checkpoint.every > 0 && checkpoint.every < steps;
  }
};

// Reads the tables train, batch, cut, mesh, precision, optimizer, schedule, lora, loss, validation,
// checkpoint, guard, hashes, trace, probe, memory, comm and run, and checks what they say against
// each other. Adapters are there where the table lora is, whose keys learning_rate and weight_decay
// come before those of schedule and optimizer. A shard of fewer samples than cut.micro_batches has
// as many micro-batches as samples.
absl::StatusOr<Settings> ReadSettings(const Config& config);

// The table lora alone: settings.lora, and what it says in place of schedule and optimizer. In its
// place `lora = false` takes back what an earlier layer of the configuration says: no adapters.
absl::Status ReadLora(const Config& config, Settings& settings);

// The names of those tables.
std::vector<std::string> SettingsTables();

}  // namespace lockstep
