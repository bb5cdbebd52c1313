#pragma once

namespace lockstep {

// How a checkpoint is written. Any is loaded.
enum class CheckpointFiles {
  kSharded,  // each rank a file of its own; one whole file where one rank saves everything
  kWhole,    // one file, by all ranks together
};

}  // namespace lockstep
