#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/comm/held_memory.h"
#include "core/report/rank_report.h"
#include "core/run/leg/training_run.h"
#include "core/run/record/recorded_step.h"
#include "core/run/strategy/strategy.h"
#include "core/tensor/memory.h"

namespace lockstep {

// What a rank of a rehearsed run came to.
struct Rehearsed {
  MemoryBooks memory;  // after it, with the peaks of all
  CostPrediction prediction;
  std::set<std::string> kernels;  // that it has called
};

struct RehearsalOptions {
  // By block, as a run has measured them (ProfilesOfRun), of this mesh or of another; empty: they
  // are measured here if the strategy needs them, which takes a second and memory for the model.
  std::vector<BlockProfile> profiles = {};
  // What the ranks' host backend holds beside the tensors of a call; null: nothing, as where ranks
  // are threads. Not asked where ranks compute on GPUs, whose data no host's backend moves: these
  // know it themselves (RankDevices::held_bytes).
  HeldBytes held_bytes = nullptr;
  // Whether stages tell each other the shapes of what they send, as in a run's first step, or know
  // them from an earlier one.
  enum class Shapes { kTold, kKnown };
  Shapes shapes = Shapes::kTold;
  // By rank, the routing of steps that a run has noted (RankReport::routed), each of which is gone
  // through; empty: mixtures of experts have even loads.
  std::vector<std::vector<RoutedStep>> routed = {};
};

// Goes through the first steps of a run and a validation over shapes alone: all ranks, as
// threads of this process, with all their tensors and communicators, but no loop computes, no
// floating-point number travels and no page of memory is written. Costs what building the model and
// some hundred small calls take. Kernels are those of the CPU, whatever the run computes on.
//
// What a rank's books then say is what its memory comes to by class, apart from what depends on
// time: transfers end when they begin. An error if a rank had one.
absl::StatusOr<std::vector<Rehearsed>> Rehearse(const TrainingRun& run,
                                                const RehearsalOptions& options = {});

// Runs the first two steps of a run over shapes alone, and returns the second step of one rank for
// each place along pp: the rank at place 0 along the other axes. The ranks along replicas, dp and
// tp do the same work and are only counted, so a run of thousands of ranks takes mesh.pp threads.
absl::StatusOr<std::vector<RecordedStep>> RecordStep(const TrainingRun& run,
                                                     const RehearsalOptions& options = {});

// Unimplemented if a run calls kernels that its devices lack: names all of them. Rehearses the run
// to see that, but only where devices lack any. Also where its data packs documents and its devices
// cannot mask them. Called before ranks start.
absl::Status CheckKernels(const TrainingRun& run);

// Adds to the predictions of a run's ranks what strategies have no closed form for: activations,
// communication buffers and workspace (of the CPU's kernels only), as a rehearsal has them, given
// which experts the run's tokens chose. Where ranks repeat each other's work, all of the state is
// the rehearsal's. Where the rehearsal fails, nothing is added, and the log
// says why.
void PredictMemory(const TrainingRun& run, const RehearsalOptions& options,
                   std::vector<RankReport>& reports);

}  // namespace lockstep
