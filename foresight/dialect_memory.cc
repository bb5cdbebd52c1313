#include "foresight/dialect_memory.h"

#include <algorithm>
#include <map>

#include "absl/strings/string_view.h"
#include "foresight/kernel_tensors.h"
#include "strategies/schedules/schedule.h"

namespace lockstep {
namespace {

constexpr absl::string_view kEmbedding = "Embedding", kPositions = "AddPositions",
                            kDropout = "ApplyDropout";

// Rows of the position table that the rank adds to its embeddings; 0 without such a table.
double PositionRows(const RecordedStep& step) {
  for (const KernelCall& kernel : step.kernels) {
    if (WithoutLeaves(kernel.kernel) != kPositions) continue;
    for (const NamedTensor& tensor : TensorsOf(kernel)) {
      if (tensor.name == "table") return tensor.rows;
    }
  }
  return 0;
}

}  // namespace

DialectMemory MemoryOf(const RecordedRun& run, const LoweredStep& lowered,
                       const std::vector<KernelCost>& costs, const Dialect& dialect, int pp,
                       const DividedState& divided) {
  using Item = LoweredStep::Item;
  const RecordedStep& step = run.steps[pp];
  const LoweredStep::Rank& plan = lowered.ranks[pp];
  DialectMemory memory;
  // What a parameter costs that this rank updates.
  const ParameterBytes& bytes = dialect.parameter_bytes();
  const double parameter_bytes = bytes.optimizer +
                                 bytes.gradient * (divided.gradients ? 1 : divided.ranks) +
                                 bytes.value * (divided.values ? 1 : divided.ranks);
  // 0 once the table is found: parameters come in the model's order, so that weights of layers with
  // as many rows come behind it.
  double position_rows = PositionRows(step);
  for (const KernelCall& kernel : step.kernels) {
    if (kernel.kernel != kOptimizerKernel) continue;
    const size_t stride = kernel.tensors.empty() ? 1 : UpdateStride();
    for (size_t i = 1; i < kernel.tensors.size(); i += stride) {
      const TensorKind& parameter = kernel.tensors[i];
      const double rows = parameter.shape.rank() == 2 ? static_cast<double>(parameter.shape[0]) : 0;
      const bool is_position_table = rows > 0 && rows == position_rows;
      if (is_position_table) position_rows = 0;
      const bool is_table = is_position_table || (rows > 0 && rows == lowered.context.vocabulary);
      (is_table ? memory.embeddings : memory.layers) +=
          parameter_bytes * static_cast<double>(parameter.elements());
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
    bool is_embedding = false;  // the lookup, or the dropout behind it
    for (const Item& item : plan.stretches[i]) {
      if (item.kind != Item::Kind::kKernel) continue;
      const KernelCost& cost = costs[item.index];
      if (IsForward(place)) {
        const absl::string_view kernel = WithoutLeaves(lowered.priced[item.index].call.kernel);
        is_embedding = kernel == kEmbedding || (is_embedding && kernel == kDropout);
        (cost.apart || is_embedding ? of_stretch.others : of_stretch.layers) += cost.kept_bytes;
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
