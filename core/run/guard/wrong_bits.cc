#include "core/run/guard/wrong_bits.h"

#include <algorithm>

#include "core/checkpoint/state_tensor.h"
#include "core/comm/mesh_shape.h"
#include "core/run/strategy/model_weights.h"

namespace lockstep {

bool DependOnEachOther(RankInLeg& here) {
  const MeshShape& mesh = here.leg().settings.mesh;
  const bool send_activations = mesh.pp > 1 || mesh.cp > 1 || mesh.tp > 1 || mesh.ep > 1;
  return send_activations ||
         std::ranges::any_of(here.strategy().State(), [](const StateTensor& part) {
           return !IsOptimizerState(part.name) &&
                  part.tensor.elements() != part.full_shape.elements();
         });
}

}  // namespace lockstep
