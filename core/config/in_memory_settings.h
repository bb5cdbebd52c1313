#pragma once

#include <cstdint>

#include "core/config/config.h"
#include "core/config/config_reader.h"

namespace lockstep {

// Copies of a run's state in the machine's memory, for ranks that are started again.
struct InMemorySettings {
  int64_t every = 0;  // checkpoint.in_memory_every: steps between copies; 0: none is made
};

// Reads checkpoint.in_memory_every from a reader that reads other keys of the table too.
void ReadInMemory(ConfigReader& checkpoint, InMemorySettings& in_memory);

// The settings of a configuration that ReadSettings has found right.
InMemorySettings InMemorySettingsOf(const Config& config);

}  // namespace lockstep
