#include "core/nn/parameter.h"

#include <vector>

#include "core/base/parallel.h"
#include "core/base/philox.h"

namespace lockstep {

void Initialize(const Parameter& parameter, uint64_t seed, int64_t first, Kernels& kernels,
                const Tensor& values) {
  if (parameter.init.kind == Init::Kind::kConstant) {
    kernels.Fill(values, parameter.init.value);
    return;
  }
  const Philox philox(PhiloxKey(seed, "init", parameter.name));
  std::vector<float> host(values.elements());
  ParallelFor(values.elements(), 4096, [&](int64_t begin, int64_t end) {
    const std::span<float> part(host.data() + begin, end - begin);
    if (parameter.init.kind == Init::Kind::kNormal) {
      philox.FillNormal(part, first + begin, 0.0f, parameter.init.value);
    } else {
      philox.FillUniform(part, first + begin, 0, -parameter.init.value, parameter.init.value);
    }
  });
  kernels.CopyFromHost(host.data(), values);
}

}  // namespace lockstep
