#pragma once

#include <cstdint>

namespace lockstep {

struct KeptSeed {
  const char* target;
  uint64_t seed;
};

// Tries that once failed, as //tools/hostile prints them, with what they found.
inline constexpr KeptSeed kKeptSeeds[] = {
    {"schedule", 4828892980252724528u},      // a message of 6147 lines
    {"assignments", 15571546927313059123u},  // a pipeline of 65,536 stages, or more
    {"assignments", 11974419426884978647u},
    {"assignments", 8529535726773681525u},   // a thousand long sequences to validate with
    {"assignments", 16212993544218660840u},  // a million rows to validate four samples in
};

}  // namespace lockstep
