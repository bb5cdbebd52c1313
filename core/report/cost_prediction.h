#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/comm/operation.h"
#include "core/tensor/memory.h"

namespace lockstep {

// What a step must cost a rank (contract 8 of the design), in closed form.
struct CostPrediction {
  enum class Often { kEachStep, kOnce };
  struct Traffic {
    Operation operation;
    std::string label;
    double wire_bytes = 0;  // sent by this rank in a step, or in the first one only
    Often often = Often::kEachStep;
  };
  struct Memory {
    MemoryClass memory_class;
    int64_t bytes = 0;
  };
  // What is kept for each parameter that the rank trains.
  struct PerParameter {
    std::string what;  // "gradient", "first moment", ...
    double bytes = 0;
  };
  std::vector<Traffic> traffic;  // one of a kind; see AddTraffic
  std::vector<Memory> memory;
  std::vector<PerParameter> per_parameter;
  double bubble_fraction = 0;  // of a step: this rank waits for other stages

  // Adds bytes to the prediction of a class of memory that has one.
  void AddMemory(MemoryClass memory_class, int64_t bytes);
  // Adds bytes to what is sent by an operation with a label, always as often.
  void AddTraffic(Operation operation, const std::string& label, double wire_bytes,
                  Often often = Often::kEachStep);
  // Adds what this rank sends in all-reduces, all-gathers or reduce-scatters in a ring of `ranks`
  // ranks. `bytes`: of the whole tensors, which an all-gather makes and the other two read.
  void AddCollective(Operation operation, const std::string& label, int ranks, double bytes);
};

// Fraction of the payload that each rank sends when all chunks go once around a ring: (n - 1) / n.
double RingFraction(int ranks);

}  // namespace lockstep
