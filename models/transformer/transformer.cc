#include "models/transformer/transformer.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/nn/layers.h"
#include "core/nn/recompute.h"
#include "glog/logging.h"
#include "models/transformer/gpt2_names.h"

namespace lockstep {
namespace {

constexpr float kStddev = 0.02f;

LinearLayer::Options Started(const Init& init) {
  return {.bias = Bias::kYes, .weight_init = &init};
}

class EmbeddingBlock : public Block {
 public:
  explicit EmbeddingBlock(const TransformerOptions& options)
      : Block("embedding"),
        token_(AddChild<EmbeddingLayer>("token", options.vocabulary, options.width,
                                        Init::Normal(kStddev))),
        position_(AddChild<PositionLayer>("position", options.context, options.width,
                                          Init::Normal(kStddev))),
        dropout_(AddChild<DropoutLayer>("dropout", name(), options.dropout)) {}

  Parameter& token_weight() { return token_.weight(); }

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    return {dropout_(pass, position_(pass, token_(pass, inputs[0])))};
  }

 private:
  EmbeddingLayer& token_;
  PositionLayer& position_;
  DropoutLayer& dropout_;
};

// x + dropout(proj(attention(norm(x))))
class AttentionBranch : public Module {
 public:
  AttentionBranch(std::string name, const TransformerOptions& options, const Init& init,
                  const Init& last_init)
      : Module(std::move(name)),
        probabilities_dropout_(options.dropout),
        norm_(AddChild<LayerNormLayer>("norm", options.width)),
        qkv_(AddChild<QkvLayer>("qkv", options.width, options.heads, Started(init))),
        projection_(
            AddChild<LinearLayer>("projection", options.width, options.width, Started(last_init))),
        dropout_(AddChild<DropoutLayer>("dropout", Module::name(), options.dropout)) {}

  Variable operator()(Pass& pass, const Variable& x) {
    const Attention attention =
        qkv_.Attend(DropoutAt(pass, name() + ".probabilities", probabilities_dropout_));
    const Variable y =
        Operate(pass, "attention", {qkv_(pass, norm_(pass, x))},
                [attention](Pass& run, const Variables& qkv) {
                  return SelfAttention(run.tape, qkv[0], attention, run.tokens.leaves);
                });
    if (!dropout_.IsActive(pass)) return projection_(pass, y, &x);
    return Add(pass.tape, x, dropout_(pass, projection_(pass, y)));
  }

 private:
  float probabilities_dropout_;
  LayerNormLayer& norm_;
  QkvLayer& qkv_;
  LinearLayer& projection_;
  DropoutLayer& dropout_;
};

// x + dropout(down(gelu(up(norm(x)))))
class MlpBranch : public Module {
 public:
  MlpBranch(std::string name, const TransformerOptions& options, const Init& init,
            const Init& last_init)
      : Module(std::move(name)),
        norm_(AddChild<LayerNormLayer>("norm", options.width)),
        up_(AddChild<LinearLayer>("up", options.width, 4 * options.width, Started(init))),
        down_(AddChild<LinearLayer>("down", 4 * options.width, options.width, Started(last_init))),
        dropout_(AddChild<DropoutLayer>("dropout", Module::name(), options.dropout)) {}

  Variable operator()(Pass& pass, const Variable& x) {
    const bool drops = dropout_.IsActive(pass);  // else the residual is added by the last product
    Variables inputs = {norm_(pass, x)};
    if (!drops) inputs.push_back(x);
    const Variable y =
        Operate(pass, "mlp", std::move(inputs), [this](Pass& run, const Variables& in) {
          return RunMlp(run, in[0], up_, down_, in.size() > 1 ? &in[1] : nullptr);
        });
    return drops ? Add(pass.tape, x, dropout_(pass, y)) : y;
  }

 private:
  LayerNormLayer& norm_;
  LinearLayer& up_;
  LinearLayer& down_;
  DropoutLayer& dropout_;
};

class TransformerBlock : public Block {
 public:
  TransformerBlock(std::string name, const TransformerOptions& options)
      : Block(std::move(name)),
        attention_(AddChild<AttentionBranch>("attention", options, Init::Normal(kStddev),
                                             LastInit(options))),
        mlp_(AddChild<MlpBranch>("network", options, Init::Normal(kStddev), LastInit(options))) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    return {mlp_(pass, attention_(pass, inputs[0]))};
  }

 private:
  static Init LastInit(const TransformerOptions& options) {
    return Init::Normal(kStddev / std::sqrt(2.0f * static_cast<float>(options.layers)));
  }

  AttentionBranch& attention_;
  MlpBranch& mlp_;
};

class HeadBlock : public Block {
 public:
  HeadBlock(const TransformerOptions& options, Parameter& token_weight)
      : Block("head"),
        norm_(AddChild<LayerNormLayer>("norm", options.width)),
        logits_(AddChild<TiedLogitsLayer>("logits", token_weight)) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    return {logits_(pass, norm_(pass, inputs[0]))};
  }

 private:
  LayerNormLayer& norm_;
  TiedLogitsLayer& logits_;
};

// Of one sequence. A layer multiplies by every matrix, and has two products of queries or
// probabilities with keys or values.
void StateCosts(const TransformerOptions& options, Model& model) {
  const int64_t d = options.width, t = options.context;
  model.blocks.front()->cost = {0, t * d};
  for (size_t i = 1; i + 1 < model.blocks.size(); ++i) {
    model.blocks[i]->cost = {t * (12 * d * d + 2 * t * d),
                             t * d,
                             2 * t * t * d,
                             {{"attention", 2 * t * t * d}, {"mlp", 8 * t * d * d}}};
  }
  model.blocks.back()->cost = {t * options.vocabulary * d, t * options.vocabulary};
}

}  // namespace

Model MakeTransformer(const TransformerOptions& options) {
  CHECK_EQ(options.width % options.heads, 0) << "width must be a multiple of heads";
  Model model;
  auto embedding = std::make_unique<EmbeddingBlock>(options);
  Parameter& token_weight = embedding->token_weight();
  model.blocks.push_back(std::move(embedding));
  for (int64_t i = 0; i < options.layers; ++i) {
    model.blocks.push_back(std::make_unique<TransformerBlock>(absl::StrCat("blocks.", i), options));
  }
  model.blocks.push_back(std::make_unique<HeadBlock>(options, token_weight));
  model.split_plan = {
      {"embedding.token", SplitStyle::kVocabulary}, {"head.logits", SplitStyle::kVocabulary},
      {"*.attention.qkv", SplitStyle::kColumn},     {"*.attention.projection", SplitStyle::kRow},
      {"*.network.up", SplitStyle::kColumn},        {"*.network.down", SplitStyle::kRow},
  };
  StateCosts(options, model);
  // Where a branch begins and ends, a whole sequence of activations.
  const int64_t activations = options.context * options.width;
  model.split_traffic.push_back({.layer = "embedding.token", .forward = activations});
  for (int64_t i = 0; i < options.layers; ++i) {
    const std::string attention = absl::StrCat("blocks.", i, ".attention");
    const std::string network = absl::StrCat("blocks.", i, ".network");
    model.split_traffic.push_back({.layer = attention + ".qkv", .backward = activations});
    model.split_traffic.push_back({.layer = attention + ".projection", .forward = activations});
    model.split_traffic.push_back(
        {.layer = network + ".up", .backward = activations, .operation = {"mlp", network}});
    model.split_traffic.push_back(
        {.layer = network + ".down", .forward = activations, .operation = {"mlp", network}});
  }
  model.split_traffic.push_back(
      {.layer = "head.logits", .backward = activations, .logit_rows = options.context});
  model.splits_sequence = true;
  model.published = Gpt2Names(options.layers);
  return model;
}

}  // namespace lockstep
