#include "core/run/directory/model_fingerprint.h"

#include <algorithm>  // std::ranges::find
#include <string_view>

#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

// The keys that enter whatever their value. Fingerprints in files depend on this list: a key that
// is added to the program does not belong here, because its default would move all of them.
constexpr std::string_view kFirstKeys[] = {
    "lora.alpha",
    "lora.layers",
    "lora.rank",
    "lora.rank_stabilised",
    "model.depth",
    "model.dropout",
    "model.experts.auxiliary_loss",
    "model.experts.bias_rate",
    "model.experts.capacity_factor",
    "model.experts.count",
    "model.experts.scaling",
    "model.experts.scores",
    "model.experts.shared",
    "model.experts.top_k",
    "model.experts.width",
    "model.head",
    "model.heads",
    "model.hidden",
    "model.key_heads",
    "model.kind",
    "model.layers",
    "model.levels",
    "model.mlp_width",
    "model.norm_epsilon",
    "model.rope_scaling.factor",
    "model.rope_scaling.high_freq_factor",
    "model.rope_scaling.low_freq_factor",
    "model.rope_scaling.original_context",
    "model.rope_scaling.type",
    "model.rope_theta",
    "model.stem",
    "model.width",
};

// Keys of the two tables that say how a model is trained, not what it computes.
constexpr const char* kKeysOfTraining[] = {"model.init", "lora.learning_rate", "lora.weight_decay",
                                           "lora.dropout"};

}  // namespace

std::string ModelFingerprint(const Config& config, const ConfigRecord& record) {
  Config part = config.Only({"model", "lora"});
  const ConfigValue* lora = part.Table("lora").value;
  if (lora != nullptr && lora->As<ConfigValue::Table>() == nullptr) part = part.Without("lora");
  for (const char* key : kKeysOfTraining) part = part.Without(key);
  for (const auto& [table, keys] : record) {
    const std::string_view top = std::string_view(table).substr(0, table.find('.'));
    if (top != "model" && top != "lora") continue;
    for (const RecordedKey& key : keys) {
      const std::string name = absl::StrCat(table, ".", key.name);
      const bool is_at_default = !key.by_default.empty() && key.value == key.by_default;
      if (is_at_default && std::ranges::find(kFirstKeys, name) == std::end(kFirstKeys)) {
        part = part.Without(name);
      }
    }
  }
  return part.Fingerprint();
}

}  // namespace lockstep
