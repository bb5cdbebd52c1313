#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/autograd/tape.h"
#include "core/base/token_order.h"
#include "core/nn/skips.h"
#include "core/tensor/slice.h"

namespace lockstep {

class ContextGroup;
class KeyValueCache;
struct LossInRuns;
class PassProbe;
class RoutingNotes;
class SplitGroup;

// Logits of which each member of a group has some of the classes, or whose sums over classes are
// trees over feature leaves; see Kernels::LargestLogits.
struct SplitLogits {
  SplitGroup* group = nullptr;  // null: the logits are whole
  Range classes = {};           // that this member has; further columns are padding
  int64_t leaf_classes = 0;     // of a feature leaf, the last one perhaps fewer; 0: all columns
};

// One forward pass of one micro-batch: what layers need to know beyond their inputs. It names the
// logical place of the pass, never the rank that runs it.
struct Pass {
  enum class Mode { kTrain, kEvaluate };

  Tape& tape;
  Mode mode = Mode::kTrain;
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t micro_batch = 0;  // of the step's global batch: the same index whatever runs it
  // What the sum of the micro-batch's losses is multiplied by, the loss scale included.
  float loss_factor = 1;
  // How the micro-batch's tokens lie in memory, on whatever stage of the model the pass is.
  TokenOrder tokens = {};
  // i32 [rows]: the position of each of these tokens, for layers that see all of them
  // (positions.h). Made by the first layer that asks; whoever runs the pass may give others.
  Tensor positions = {};
  // i32 [samples, time] in host memory, where samples are packed from documents: of each position
  // of a sample, on whatever rank, the first position of its document. Undefined: they are not.
  Tensor documents = {};
  // Ranks that have the other tokens of the micro-batch's sequences (context.h); null: all are
  // here.
  ContextGroup* context = nullptr;
  // Keys and values of the tokens before these (key_value_cache.h), in generation; null: there are
  // none.
  KeyValueCache* cache = nullptr;

  // Whether it is done once more in backward, because nothing was kept of it (activation
  // checkpointing; Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016), and whether
  // this is that second time, which must leave no other traces than the first.
  enum class Replay { kNone, kCheckpointing, kRecomputing };
  Replay replay = Replay::kNone;
  // Ranks that divide the rows between split layers (OwnRows, split.h); null: no ranks do.
  const SplitGroup* sequence = nullptr;
  // Receives what passes through blocks and layers (probe.h); null: nothing is probed.
  PassProbe* probe = nullptr;
  // Meets what says how many rows go to which experts (core/autograd/routing_notes.h); null: nobody
  // does.
  RoutingNotes* routing = nullptr;

  // Kinds of operations that the block which is running recomputes (recompute.h); null: none.
  const std::vector<std::string>* recomputed_operations = nullptr;

  // Has the layer that makes logits hand on their losses instead, made in runs of rows
  // (loss_in_runs.h); null: logits.
  const LossInRuns* loss_in_runs = nullptr;
  // Set by the layer that makes the logits, for the loss behind it.
  SplitLogits split_logits = {};
  // Stashed by blocks, and not popped yet.
  Skips skips = {};

  bool is_checkpointing() const { return replay == Replay::kCheckpointing; }
  bool is_recomputing() const { return replay == Replay::kRecomputing; }
  bool training() const { return mode == Mode::kTrain; }
  Kernels& kernels() const { return tape.kernels(); }
};

}  // namespace lockstep
