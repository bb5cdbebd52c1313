#pragma once

#include <string>

#include "core/run/strategy/strategy.h"

namespace lockstep {

// A strategy of the engine, as data: the keys of the configuration that make it what it is, and
// defaults for others. Everything that a key does is the same under every preset.
//
// The blocks of the model are divided into stages along mesh.pp, which run by a schedule; ranks
// along mesh.replicas and mesh.dp train the same stages on different shards of the batch; ranks
// along mesh.cp divide the tokens of each sequence; runs of mesh.ep of these divide the experts of
// each layer; ranks along mesh.tp compute layers together.
// docs/configuration.md lists the keys of the tables [pipeline], [data_parallel], [recompute] and
// [tensor_parallel].
StrategyDefinition EnginePreset(const std::string& name, PresetKeys keys);

// Fixed keys that several presets share.
inline FixedKey OneStage(const std::string& with_stages) { return {"mesh.pp", "1", with_stages}; }
inline FixedKey NothingDivided() {
  return {"data_parallel.shard", "\"none\"", "zero1, zero2, fsdp or fsdp_pipe"};
}
inline FixedKey Divides(const std::string& what) {
  return {"data_parallel.shard", "\"" + what + "\"", "ddp, zero1, zero2, fsdp or fsdp_pipe"};
}

}  // namespace lockstep
