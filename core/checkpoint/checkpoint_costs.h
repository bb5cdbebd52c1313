#pragma once

#include <cstdint>

namespace lockstep {

// What checkpoints that were written beside training have cost a rank so far.
struct CheckpointCosts {
  int64_t checkpoints = 0;    // that have got their names
  int64_t bytes = 0;          // of the state that this rank copied for the newest of them
  int64_t held_nanos = 0;     // steps were held up by copies of the state
  int64_t waited_nanos = 0;   // the rank waited for one that was still written
  int64_t written_nanos = 0;  // from the copies to the checkpoints' names

  CheckpointCosts operator+(const CheckpointCosts& more) const {
    return {.checkpoints = checkpoints + more.checkpoints,
            .bytes = more.checkpoints > 0 ? more.bytes : bytes,
            .held_nanos = held_nanos + more.held_nanos,
            .waited_nanos = waited_nanos + more.waited_nanos,
            .written_nanos = written_nanos + more.written_nanos};
  }
  CheckpointCosts operator-(const CheckpointCosts& before) const {
    return {.checkpoints = checkpoints - before.checkpoints,
            .bytes = bytes,
            .held_nanos = held_nanos - before.held_nanos,
            .waited_nanos = waited_nanos - before.waited_nanos,
            .written_nanos = written_nanos - before.written_nanos};
  }
};

}  // namespace lockstep
