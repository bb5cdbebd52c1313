#include "core/run/device/gpu_places.h"

namespace lockstep {

GpuPlaces PlaceOnGpus(int gpus, const RanksHere& ranks) {
  if (ranks.ranks == 1) return GpuPlaces::kShared;
  if (ranks.processes > 0 || ranks.ranks <= gpus) return GpuPlaces::kOwn;
  return GpuPlaces::kShared;
}

}  // namespace lockstep
