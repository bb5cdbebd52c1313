#include "core/run/host_batches.h"

namespace lockstep {

Batch HostBatches::Deliver(Batch batch) {
  if (computes_here()) return batch;
  const auto copy = [this](const Tensor& host) {
    Tensor device = kernels_.EmptyLike(host);
    kernels_.CopyFromHost(host.raw(), device);
    return device;
  };
  return {.inputs = copy(batch.inputs), .targets = copy(batch.targets)};
}

}  // namespace lockstep
