#include "core/run/guard/move_guard.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/comm/agree.h"
#include "core/run/strategy/parameter_hash.h"

namespace lockstep {

absl::StatusOr<std::vector<TensorHash>> MoveGuard::HashesOf(RankInLeg* here) const {
  if (!schedule_.checks() || here == nullptr) return std::vector<TensorHash>();
  return HashTensors(tools_.kernels, here->ranks(), here->strategy().State());
}

absl::Status MoveGuard::Begin(RankInLeg* here) {
  LS_ASSIGN_OR_RETURN(before_, HashesOf(here));
  return absl::OkStatus();
}

absl::Status MoveGuard::End(const MeshChange& change, RankInLeg* here) {
  if (!schedule_.checks()) return absl::OkStatus();
  LS_ASSIGN_OR_RETURN(const std::vector<TensorHash> after, HashesOf(here));
  absl::Status moved;
  if (tools_.world.rank() == 0) {  // which is in both legs
    const auto other = std::ranges::find_if(before_, [&](const TensorHash& tensor) {
      return std::ranges::find(after, tensor) == after.end();
    });
    if (other != before_.end()) {
      moved = absl::DataLossError(absl::StrCat(
          "step ", change.steps, ": wrong bits: '", other->tensor, "' came to the mesh \"",
          change.to, "\" with other bits than \"", change.from,
          "\" had left in it: a memory or a link between ranks is at fault. The run stops before "
          "it "
          "saves anything; --resume goes on from the newest checkpoint"));
    }
  }
  return AgreeOnFirst(moved, tools_.world);
}

}  // namespace lockstep
