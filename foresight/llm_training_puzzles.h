// The reference solutions of LLM-Training-Puzzles (Alexander Rush,
// github.com/srush/LLM-Training-Puzzles), as recorded steps. Its cost model is the cluster and the
// dialect llm_training_puzzles.
//
// What a solution holds at a time is its own choice (some keep outputs or gradients that they need
// no more), and the last one shards layers over all ranks of a pipeline, which no strategy of
// Lockstep does: so the solutions are written down operation by operation.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "foresight/recorded_run.h"

namespace lockstep {

// Rows and columns of a layer.
inline constexpr int64_t kPuzzleWidth = 512;

struct PuzzleSolution {
  std::string name;
  std::shared_ptr<const RecordedRun> run;
  double seconds = 0;   // that the puzzles' own program counts, in its steps
  int64_t numbers = 0;  // that its fullest rank holds
};

// All eight.
std::vector<PuzzleSolution> PuzzleSolutions();

// What the fullest rank of such a run holds at most.
int64_t MostNumbers(const RecordedRun& run);

}  // namespace lockstep
