#include "models/transformer/decoder.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

constexpr float kStddev = 0.02f;

// States what one sequence costs. A layer multiplies by each of its matrices, and attention adds
// two products: queries with keys, and probabilities with values.
void StateCosts(const DecoderSizes& sizes, Model& model) {
  const int64_t d = sizes.width, t = sizes.context;
  model.blocks.front()->cost = {0, t * d};
  for (size_t i = 1; i + 1 < model.blocks.size(); ++i) {
    const int64_t mlp = t * sizes.mlp_weights, products = 2 * t * t * d;
    model.blocks[i]->cost = {t * sizes.attention_weights + mlp + products,
                             t * d,
                             products,
                             {{"attention", products}, {"mlp", mlp}}};
  }
  model.blocks.back()->cost = {t * sizes.vocabulary * d, t * sizes.vocabulary};
}

// Where a branch begins and ends, a whole sequence of activations.
void StateTraffic(const DecoderSizes& sizes, Model& model) {
  const int64_t activations = sizes.context * sizes.width;
  model.split_traffic.push_back({.layer = "embedding.token", .forward = activations});
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const std::string attention = absl::StrCat("blocks.", i, ".attention");
    const std::string network = absl::StrCat("blocks.", i, ".network");
    model.split_traffic.push_back({.layer = attention + ".qkv", .backward = activations});
    model.split_traffic.push_back({.layer = attention + ".projection", .forward = activations});
    const SplitTraffic::PartOf mlp = {"mlp", network};
    if (sizes.chosen_experts > 0) {
      // A row for each choice goes in and comes out.
      const int64_t choices = sizes.chosen_experts * activations;
      model.split_traffic.push_back({.layer = network + ".experts",
                                     .forward = choices,
                                     .backward = choices,
                                     .operation = mlp});
    }
    if (sizes.first_of_mlp.empty()) continue;
    model.split_traffic.push_back(
        {.layer = network + "." + sizes.first_of_mlp, .backward = activations, .operation = mlp});
    model.split_traffic.push_back(
        {.layer = network + ".down", .forward = activations, .operation = mlp});
  }
  model.split_traffic.push_back(
      {.layer = "head.logits", .backward = activations, .logit_rows = sizes.context});
}

}  // namespace

void StatePlanAndCosts(const DecoderSizes& sizes, Model& model) {
  model.split_plan = {
      {"embedding.token", SplitStyle::kVocabulary},
      {"head.logits", SplitStyle::kVocabulary},
      {"*.attention.qkv", SplitStyle::kColumn},
      {"*.attention.projection", SplitStyle::kRow},
      {"*.network.experts", SplitStyle::kColumn},
      {"*.network." + sizes.first_of_mlp, SplitStyle::kColumn},
      {"*.network.down", SplitStyle::kRow},
  };
  model.splits_sequence = true;
  StateCosts(sizes, model);
  StateTraffic(sizes, model);
}

Init InitOfMatrices() { return Init::Normal(kStddev); }

Init InitOfBranchEnds(int64_t layers) {
  return Init::Normal(kStddev / std::sqrt(2.0f * static_cast<float>(layers)));
}

}  // namespace lockstep
