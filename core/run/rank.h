#pragma once

#include "core/comm/communicator.h"
#include "core/comm/mesh.h"
#include "core/kernels/kernels.h"
#include "core/report/step_timer.h"
#include "core/report/trace.h"

namespace lockstep {

// A rank's world (contract 5 of the design): everything that it uses, and nothing that another rank
// touches. Valid while the rank runs.
struct Rank {
  int rank;  // in the world
  int size;  // of the world
  Kernels& kernels;
  Mesh& mesh;
  StepTimer& timer;
  Trace& trace;

  Allocator& allocator() const { return kernels.allocator(); }
};

}  // namespace lockstep
