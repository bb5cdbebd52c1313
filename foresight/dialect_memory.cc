#include "foresight/dialect_memory.h"

#include <algorithm>
#include <map>

#include "foresight/kernel_tensors.h"
#include "strategies/schedules/schedule.h"

namespace lockstep {

DialectMemory MemoryOf(const RecordedRun& run, const LoweredStep& lowered,
                       const std::vector<KernelCost>& costs, const Dialect& dialect, int pp) {
  using Item = LoweredStep::Item;
  const RecordedStep& step = run.steps[pp];
  const LoweredStep::Rank& plan = lowered.ranks[pp];
  DialectMemory memory;
  for (const KernelCall& kernel : step.kernels) {
    if (kernel.kernel != kOptimizerKernel) continue;
    const size_t stride = kernel.tensors.empty() ? 1 : UpdateStride();
    for (size_t i = 1; i < kernel.tensors.size(); i += stride) {
      const TensorKind& parameter = kernel.tensors[i];
      const bool is_table = parameter.shape.rank() == 2 && lowered.context.vocabulary > 0 &&
                            static_cast<double>(parameter.shape[0]) == lowered.context.vocabulary;
      (is_table ? memory.embeddings : memory.layers) +=
          dialect.parameter_bytes() * static_cast<double>(parameter.elements());
    }
  }
  // By stage: what forward keeps, of layers and of the rest, and what backward needs anew.
  struct Kept {
    double layers = 0, others = 0, recomputed = 0;
  };
  std::map<int, Kept> kept;
  for (size_t i = 0; i < plan.stretches.size(); ++i) {
    const StepPlace& place = step.stretches[i].place;
    if (!IsForward(place) && !IsBackward(place)) continue;
    Kept of_stretch;
    double since_backward = 0;
    for (const Item& item : plan.stretches[i]) {
      if (item.kind != Item::Kind::kKernel) continue;
      const KernelCost& cost = costs[item.index];
      if (IsForward(place)) {
        (cost.apart ? of_stretch.others : of_stretch.layers) += cost.kept_bytes;
      } else {
        since_backward = item.is_backward ? 0 : since_backward + cost.kept_bytes;
        of_stretch.recomputed = std::max(of_stretch.recomputed, since_backward);
      }
    }
    Kept& of_stage = kept[place.stage];
    of_stage.layers = std::max(of_stage.layers, of_stretch.layers);
    of_stage.others = std::max(of_stage.others, of_stretch.others);
    of_stage.recomputed = std::max(of_stage.recomputed, of_stretch.recomputed);
  }
  Kept live;
  double most = 0;
  for (const Action& action : run.schedule.ranks[pp]) {
    const Kept& of_stage = kept[action.stage];
    const double sign = action.kind == ActionKind::kForward ? 1
                        : EndsBackward(action.kind)         ? -1
                                                            : 0;
    const double recomputed = action.kind == ActionKind::kForward ? 0 : of_stage.recomputed;
    if (sign > 0) {
      live.layers += of_stage.layers;
      live.others += of_stage.others;
    }
    if (live.layers + live.others + recomputed > most) {
      most = live.layers + live.others + recomputed;
      memory.layer_activations = live.layers;
      memory.other_activations = live.others;
      memory.recomputed = recomputed;
    }
    if (sign < 0) {
      live.layers -= of_stage.layers;
      live.others -= of_stage.others;
    }
  }
  return memory;
}

}  // namespace lockstep
