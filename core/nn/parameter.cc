#include "core/nn/parameter.h"

#include <span>
#include <vector>

#include "core/base/parallel.h"
#include "core/base/philox.h"

namespace lockstep {

void Initialize(const Parameter& parameter, uint64_t seed, int64_t first, Kernels& kernels,
                const Tensor& values) {
  const Parameter& owner = parameter.tied_to != nullptr ? *parameter.tied_to : parameter;
  if (owner.init.kind == Init::Kind::kConstant) {
    kernels.Fill(values, owner.init.value);
    return;
  }
  const Philox philox(PhiloxKey(seed, "init", owner.name));
  std::vector<float> host(values.elements());
  ParallelFor(values.elements(), 4096, [&](int64_t begin, int64_t end) {
    const std::span<float> part(host.data() + begin, end - begin);
    if (owner.init.kind == Init::Kind::kNormal) {
      philox.FillNormal(part, first + begin, 0.0f, owner.init.value);
    } else {
      philox.FillUniform(part, first + begin, 0, -owner.init.value, owner.init.value);
    }
  });
  kernels.CopyFromHost(host.data(), values);
}

}  // namespace lockstep
