#include "core/nn/parameter.h"

#include <algorithm>
#include <span>
#include <vector>

#include "core/base/parallel.h"
#include "core/base/philox.h"

namespace lockstep {
namespace {

// Fills the runs of `values`, which belong to elements of the parameter; what none covers is 0.
void InitializeRanges(const Parameter& parameter, uint64_t seed,
                      const std::vector<ElementRange>& runs, Kernels& kernels,
                      const Tensor& values) {
  if (SkipsLoops()) return;
  const Parameter& owner = parameter.tied_to != nullptr ? *parameter.tied_to : parameter;
  const float value = owner.init.value;
  const Philox philox(PhiloxKey(seed, "init", owner.name));
  std::vector<float> host(values.elements());
  for (const ElementRange& run : runs) {
    ParallelFor(run.elements, 4096, [&](int64_t begin, int64_t end) {
      const std::span<float> part(host.data() + run.in_slice + begin, end - begin);
      switch (owner.init.kind) {
        case Init::Kind::kConstant:
          std::fill(part.begin(), part.end(), value);
          break;
        case Init::Kind::kNormal:
          philox.FillNormal(part, run.in_whole + begin, 0.0f, value);
          break;
        case Init::Kind::kUniform:
          philox.FillUniform(part, run.in_whole + begin, 0, -value, value);
          break;
      }
    });
  }
  if (values.dtype() == DType::kF32) return kernels.CopyFromHost(host.data(), values);
  const Tensor drawn = kernels.Empty(values.shape(), DType::kF32, MemoryClass::kParameters);
  kernels.CopyFromHost(host.data(), drawn);
  kernels.Cast(drawn, values);
}

}  // namespace

void Initialize(const Parameter& parameter, uint64_t seed, int64_t first, Kernels& kernels,
                const Tensor& values) {
  std::vector<ElementRange> runs = {{.in_whole = first, .elements = values.elements()}};
  if (parameter.slice) {
    runs = RangesWithin(parameter.slice->ElementRanges(parameter.shape.dims()),
                        {.first = first, .count = values.elements()});
  }
  InitializeRanges(parameter, seed, runs, kernels, values);
}

}  // namespace lockstep
