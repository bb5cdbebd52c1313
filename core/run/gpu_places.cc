#include "core/run/gpu_places.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lockstep {

absl::StatusOr<GpuPlaces> PlaceOnGpus(int gpus, const RanksHere& ranks) {
  using Kind = GpuPlaces::Kind;
  if (ranks.ranks == 1) return GpuPlaces();
  if (ranks.processes == 0) {
    return GpuPlaces{.kind = ranks.ranks <= gpus ? Kind::kOwn : Kind::kShared};
  }
  if (ranks.processes <= gpus) return GpuPlaces{.kind = Kind::kOwn, .first = ranks.own_number};
  return absl::UnavailableError(absl::StrCat(
      "--device cuda: ", ranks.processes, " ranks were started on this machine, which has ", gpus,
      gpus == 1 ? " GPU" : " GPUs",
      ", and a rank that is a process needs one of its own; start fewer, or leave the launcher "
      "away: ranks are then threads, which share a GPU; or use --device cpu"));
}

}  // namespace lockstep
