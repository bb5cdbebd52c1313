#include "models/transformer/llama_names.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace lockstep {

bool HasPublishedKind(const LlamaOptions& options) {
  return !options.experts || (options.experts->routing.scores == Routing::Scores::kSoftmax &&
                              options.experts->routing.scaling == 1 &&
                              options.experts->bias_rate == 0 && options.shared_width == 0);
}

PublishedNames LlamaNames(const LlamaOptions& options) {
  PublishedNames names;
  using Layout = PublishedTensor::Layout;
  const auto add = [&names](const std::string& ours, const std::string& theirs,
                            const Range& rows = {}, Layout layout = Layout::kSame) {
    names.tensors.push_back({.parameter = ours + ".weight",
                             .name = theirs + ".weight",
                             .layout = layout,
                             .of_parameter = rows});
  };
  // The parameters of a layer's experts follow each other, tensor by tensor.
  const auto add_experts = [&](const std::string& ours, const std::string& theirs) {
    add(ours + ".router", theirs + ".gate");
    const int64_t experts = options.experts->routing.experts, hidden = options.experts->hidden;
    const auto expert = [&](int64_t e) { return absl::StrCat(theirs, ".experts.", e); };
    for (int64_t e = 0; e < experts; ++e) {
      add(ours + ".experts.gate_up", expert(e) + ".w1", {2 * e * hidden, hidden});
      add(ours + ".experts.gate_up", expert(e) + ".w3", {(2 * e + 1) * hidden, hidden});
    }
    for (int64_t e = 0; e < experts; ++e) {
      add(ours + ".experts.down", expert(e) + ".w2", {e * hidden, hidden}, Layout::kTransposed);
    }
  };
  const int64_t queries = options.width, keys = options.width / options.heads * options.key_heads;
  add("embedding.token", "model.embed_tokens");
  for (int64_t i = 0; i < options.layers; ++i) {
    const std::string ours = absl::StrCat("blocks.", i), theirs = absl::StrCat("model.layers.", i);
    add(ours + ".attention.norm", theirs + ".input_layernorm");
    add(ours + ".attention.qkv", theirs + ".self_attn.q_proj", {0, queries});
    add(ours + ".attention.qkv", theirs + ".self_attn.k_proj", {queries, keys});
    add(ours + ".attention.qkv", theirs + ".self_attn.v_proj", {queries + keys, keys});
    add(ours + ".attention.projection", theirs + ".self_attn.o_proj");
    add(ours + ".network.norm", theirs + ".post_attention_layernorm");
    if (options.experts) {
      add_experts(ours + ".network", theirs + ".block_sparse_moe");
    } else {
      add(ours + ".network.gate_up", theirs + ".mlp.gate_proj", {0, options.mlp_width});
      add(ours + ".network.gate_up", theirs + ".mlp.up_proj",
          {options.mlp_width, options.mlp_width});
      add(ours + ".network.down", theirs + ".mlp.down_proj");
    }
    // Frequencies, which older files hold; config.json tells them.
    names.ignored.push_back(theirs + ".self_attn.rotary_emb.inv_freq");
  }
  add("head.norm", "model.norm");
  if (options.head == LlamaOptions::Head::kOwn) {
    add("head.logits", "lm_head");
  } else {
    names.tied.push_back({"embedding.token.weight", "lm_head.weight"});
  }
  return names;
}

}  // namespace lockstep
