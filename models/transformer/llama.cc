#include "models/transformer/llama.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/nn/context.h"
#include "core/nn/experts.h"
#include "core/nn/layers.h"
#include "core/nn/recompute.h"
#include "glog/logging.h"
#include "models/transformer/decoder.h"
#include "models/transformer/llama_config.h"
#include "models/transformer/llama_names.h"

namespace lockstep {
namespace {

using Rotary = std::shared_ptr<RotaryPositions>;  // one for all layers

LinearLayer::Options Started(const Init& init) { return {.bias = Bias::kNo, .weight_init = &init}; }

class EmbeddingBlock : public Block {
 public:
  explicit EmbeddingBlock(const LlamaOptions& options)
      : Block("embedding"),
        token_(AddChild<EmbeddingLayer>("token", options.vocabulary, options.width,
                                        InitOfMatrices())) {}

  Parameter& token_weight() { return token_.weight(); }

 protected:
  Variables Forward(Pass& pass, Variables inputs) override { return {token_(pass, inputs[0])}; }

 private:
  EmbeddingLayer& token_;
};

// x + proj(attention(norm(x)))
class AttentionBranch : public Module {
 public:
  AttentionBranch(std::string name, const LlamaOptions& options, Rotary rotary, const Init& init,
                  const Init& last_init)
      : Module(std::move(name)),
        rotary_(std::move(rotary)),
        norm_(AddChild<RmsNormLayer>("norm", options.width,
                                     static_cast<float>(options.norm_epsilon))),
        qkv_(AddChild<QkvLayer>("qkv", options.width, options.heads, options.key_heads,
                                Started(init))),
        projection_(AddChild<LinearLayer>("projection", options.width, options.width,
                                          Started(last_init))) {}

  Variable operator()(Pass& pass, const Variable& x) {
    const Attention attention = qkv_.Attend({});
    Variable qkv = rotary_->Turn(pass, qkv_(pass, norm_(pass, x)), attention);
    const Variable y = qkv_.ProbedAttention(
        pass, name() + ".core",
        Operate(pass, "attention", {std::move(qkv)}, [attention](Pass& run, const Variables& in) {
          return Attend(run, in[0], attention);
        }));
    return projection_(pass, y, &x);
  }

 private:
  Rotary rotary_;
  RmsNormLayer& norm_;
  QkvLayer& qkv_;
  LinearLayer& projection_;
};

// x + down(silu(gate(norm(x))) * up(norm(x)))
class MlpBranch : public Module {
 public:
  MlpBranch(std::string name, const LlamaOptions& options, const Init& init, const Init& last_init)
      : Module(std::move(name)),
        norm_(AddChild<RmsNormLayer>("norm", options.width,
                                     static_cast<float>(options.norm_epsilon))),
        gate_up_(AddChild<GateUpLayer>("gate_up", options.width, options.mlp_width, Started(init))),
        down_(AddChild<LinearLayer>("down", options.mlp_width, options.width, Started(last_init))) {
  }

  Variable operator()(Pass& pass, const Variable& x) {
    return Operate(pass, "mlp", {norm_(pass, x), x}, [this](Pass& run, const Variables& in) {
      return RunSwiGluMlp(run, in[0], gate_up_, down_, &in[1]);
    });
  }

 private:
  RmsNormLayer& norm_;
  GateUpLayer& gate_up_;
  LinearLayer& down_;
};

// x + the weighted sum of a token's experts of norm(x), + what the shared experts make of it
class ExpertsBranch : public Module {
 public:
  ExpertsBranch(std::string name, const LlamaOptions& options, const Init& init,
                const Init& last_init)
      : Module(std::move(name)),
        norm_(AddChild<RmsNormLayer>("norm", options.width,
                                     static_cast<float>(options.norm_epsilon))),
        router_(AddChild<RouterLayer>("router", options.width, *options.experts, init)),
        experts_(
            AddChild<ExpertsLayer>("experts", options.width, *options.experts, init, last_init)) {
    if (options.shared_width == 0) return;
    gate_up_ =
        &AddChild<GateUpLayer>("gate_up", options.width, options.shared_width, Started(init));
    down_ = &AddChild<LinearLayer>("down", options.shared_width, options.width, Started(last_init));
  }

  Variable operator()(Pass& pass, const Variable& x) {
    return Operate(pass, "mlp", {norm_(pass, x), x}, [this](Pass& run, const Variables& in) {
      const RoutedRows routed = router_(run, in[0]);
      if (gate_up_ == nullptr) return experts_(run, in[0], routed, in[1]);
      return experts_(run, in[0], routed, RunSwiGluMlp(run, in[0], *gate_up_, *down_, &in[1]));
    });
  }

 private:
  RmsNormLayer& norm_;
  RouterLayer& router_;
  ExpertsLayer& experts_;
  GateUpLayer* gate_up_ = nullptr;  // of shared experts; null: there are none
  LinearLayer* down_ = nullptr;
};

template <typename Network>
class LlamaBlock : public Block {
 public:
  LlamaBlock(std::string name, const LlamaOptions& options, Rotary rotary)
      : Block(std::move(name)),
        attention_(AddChild<AttentionBranch>("attention", options, std::move(rotary),
                                             InitOfMatrices(), InitOfBranchEnds(options.layers))),
        network_(AddChild<Network>("network", options, InitOfMatrices(),
                                   InitOfBranchEnds(options.layers))) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    return {network_(pass, attention_(pass, inputs[0]))};
  }

 private:
  AttentionBranch& attention_;
  Network& network_;
};

std::unique_ptr<Block> MakeBlock(std::string name, const LlamaOptions& options, Rotary rotary) {
  if (options.experts) {
    return std::make_unique<LlamaBlock<ExpertsBranch>>(std::move(name), options, std::move(rotary));
  }
  return std::make_unique<LlamaBlock<MlpBranch>>(std::move(name), options, std::move(rotary));
}

// Says what experts change of a model's sizes and of what a strategy may do with it.
void StateExperts(const LlamaOptions& options, DecoderSizes& sizes, Model& model) {
  const ExpertsOptions& experts = *options.experts;
  const int64_t of_expert = 3 * options.width * experts.hidden;
  sizes.mlp_weights = options.width * experts.routing.experts + experts.routing.chosen * of_expert +
                      3 * options.width * options.shared_width;
  sizes.chosen_experts = experts.routing.chosen;
  if (options.shared_width == 0) sizes.first_of_mlp.clear();
  model.experts = experts.routing.experts;
  model.counts_choices = experts.counts_choices();
  model.idle_parameters =
      options.layers * (experts.routing.experts - experts.routing.chosen) * of_expert;
}

class HeadBlock : public Block {
 public:
  HeadBlock(const LlamaOptions& options, Parameter& token_weight)
      : Block("head"),
        norm_(AddChild<RmsNormLayer>("norm", options.width,
                                     static_cast<float>(options.norm_epsilon))),
        logits_(options.head == LlamaOptions::Head::kTied
                    ? AddChild<LogitsLayer>("logits", token_weight)
                    : AddChild<LogitsLayer>("logits", options.vocabulary, options.width,
                                            InitOfMatrices())) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    return {logits_(pass, norm_(pass, inputs[0]))};
  }

 private:
  RmsNormLayer& norm_;
  LogitsLayer& logits_;
};

}  // namespace

Model MakeLlama(const LlamaOptions& options) {
  CHECK_EQ(options.width % (2 * options.heads), 0) << "width must be an even multiple of heads";
  CHECK_EQ(options.heads % options.key_heads, 0) << "heads must be a multiple of key_heads";
  const int64_t head_width = options.width / options.heads;
  Model model;
  auto embedding = std::make_unique<EmbeddingBlock>(options);
  Parameter& token_weight = embedding->token_weight();
  model.blocks.push_back(std::move(embedding));
  const auto rotary =
      std::make_shared<RotaryPositions>(options.context, head_width, options.rotary);
  for (int64_t i = 0; i < options.layers; ++i) {
    model.blocks.push_back(MakeBlock(absl::StrCat("blocks.", i), options, rotary));
  }
  model.blocks.push_back(std::make_unique<HeadBlock>(options, token_weight));
  DecoderSizes sizes = {
      .layers = options.layers,
      .width = options.width,
      .context = options.context,
      .vocabulary = options.vocabulary,
      .attention_weights = options.width * (2 * options.width + 2 * options.key_heads * head_width),
      .mlp_weights = 3 * options.width * options.mlp_width,
      .first_of_mlp = "gate_up"};
  if (options.experts) StateExperts(options, sizes, model);
  StatePlanAndCosts(sizes, model);
  if (!HasPublishedKind(options)) return model;
  model.published = LlamaNames(options);
  model.published.config = LlamaConfig(options);
  model.published.check_config = [options](const std::string& text) {
    return CheckLlamaConfig(text, options);
  };
  return model;
}

}  // namespace lockstep
