#include "core/kernels/cpu/instruction_set.h"

namespace lockstep {

std::string_view Name(InstructionSet instructions) {
  return instructions == InstructionSet::kAvx512 ? "AVX-512" : "AVX2";
}

bool HasAvx2AndFma() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

InstructionSet WidestInstructionSet() {
  return __builtin_cpu_supports("avx512f") ? InstructionSet::kAvx512 : InstructionSet::kAvx2;
}

}  // namespace lockstep
