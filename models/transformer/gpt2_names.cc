#include "models/transformer/gpt2_names.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace lockstep {

PublishedNames Gpt2Names(int64_t layers) {
  using Layout = PublishedTensor::Layout;
  using Rows = PublishedTensor::Rows;
  PublishedNames names = {.prefix = "transformer.", .tensors = {}, .tied = {}, .ignored = {}};
  // Weight and bias of a layer.
  const auto add = [&names](const std::string& ours, const std::string& theirs, Layout layout) {
    names.tensors.push_back({ours + ".weight", theirs + ".weight", layout});
    names.tensors.push_back({ours + ".bias", theirs + ".bias"});
  };
  names.tensors.push_back({"embedding.token.weight", "wte.weight"});
  names.tensors.push_back({"embedding.position.weight", "wpe.weight", Layout::kSame, Rows::kFirst});
  for (int64_t i = 0; i < layers; ++i) {
    const std::string ours = absl::StrCat("blocks.", i), theirs = absl::StrCat("h.", i);
    add(ours + ".attention.norm", theirs + ".ln_1", Layout::kSame);
    add(ours + ".attention.qkv", theirs + ".attn.c_attn", Layout::kTransposed);
    add(ours + ".attention.projection", theirs + ".attn.c_proj", Layout::kTransposed);
    add(ours + ".network.norm", theirs + ".ln_2", Layout::kSame);
    add(ours + ".network.up", theirs + ".mlp.c_fc", Layout::kTransposed);
    add(ours + ".network.down", theirs + ".mlp.c_proj", Layout::kTransposed);
    // The causal mask, and what is put in place of what it hides.
    names.ignored.push_back(theirs + ".attn.bias");
    names.ignored.push_back(theirs + ".attn.masked_bias");
  }
  add("head.norm", "ln_f", Layout::kSame);
  names.tied.push_back({"embedding.token.weight", "lm_head.weight"});
  return names;
}

}  // namespace lockstep
