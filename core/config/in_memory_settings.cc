#include "core/config/in_memory_settings.h"

#include "core/config/key_ranges.h"

namespace lockstep {

void ReadInMemory(ConfigReader& checkpoint, InMemorySettings& in_memory) {
  checkpoint.Read("in_memory_every", &in_memory.every, {.at_least = 0, .at_most = kMostSteps});
}

InMemorySettings InMemorySettingsOf(const Config& config) {
  InMemorySettings in_memory;
  ConfigReader checkpoint(config.Table("checkpoint"));
  ReadInMemory(checkpoint, in_memory);
  return in_memory;
}

}  // namespace lockstep
