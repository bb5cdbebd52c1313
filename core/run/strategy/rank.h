#pragma once

#include "core/comm/communicator.h"
#include "core/comm/mesh.h"
#include "core/kernels/kernels.h"
#include "core/report/step_timer.h"
#include "core/report/trace.h"
#include "core/run/record/routed_steps.h"
#include "core/run/record/run_probe.h"
#include "core/run/record/step_recorder.h"

namespace lockstep {

// A rank's world (contract 5 of the design): everything that it uses, and nothing that another rank
// touches. Valid while the rank runs.
struct Rank {
  Rank(Kernels& rank_kernels, Mesh& rank_mesh, StepTimer& rank_timer, Trace& rank_trace)
      : kernels(rank_kernels), mesh(rank_mesh), timer(rank_timer), trace(rank_trace) {}

  Kernels& kernels;
  Mesh& mesh;
  StepTimer& timer;
  Trace& trace;
  RunProbe* probe = nullptr;         // writes down what passes through the rank; null: nothing
  PassProbe* search = nullptr;       // looks at a step that is repeated, in place of `probe`
  StepRecorder* recorder = nullptr;  // records steps of a rehearsal; else null
  RoutedSteps* routing = nullptr;    // hears which rows go to which experts; null: nobody does
  const int rank = mesh.world().rank();
  const int size = mesh.world().size();

  Allocator& allocator() const { return kernels.allocator(); }
};

// What writes down the present step; null: it is not probed.
inline RunProbe* RunProbeOf(const Rank& rank) {
  return rank.probe != nullptr && rank.probe->is_on() ? rank.probe : nullptr;
}

// What hears of the routing of the rank's passes; null: nothing.
inline RoutingNotes* RoutingNotesOf(const Rank& rank) {
  return rank.routing != nullptr ? &rank.routing->notes() : nullptr;
}

// What watches the rank's passes; null: nothing.
inline PassProbe* PassProbeOf(const Rank& rank) {
  return rank.search != nullptr ? rank.search : RunProbeOf(rank);
}

}  // namespace lockstep
