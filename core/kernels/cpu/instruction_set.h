#pragma once

#include <string_view>

namespace lockstep {

// Vector instructions among which the CPU's kernels choose when they run. In fp32 and without
// convolutions the choice changes no bits (docs/numerics.md).
enum class InstructionSet {
  kAvx2,    // with FMA: every processor that this program runs on
  kAvx512,  // with bf16 products where the processor has them
};

std::string_view Name(InstructionSet instructions);

// Whether this processor has AVX2 and FMA, without which no kernel runs.
bool HasAvx2AndFma();

// The widest of this processor. Requires HasAvx2AndFma().
InstructionSet WidestInstructionSet();

}  // namespace lockstep
