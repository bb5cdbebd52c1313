#include "models/transformer/transformer.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/nn/context.h"
#include "core/nn/layers.h"
#include "core/nn/recompute.h"
#include "glog/logging.h"
#include "models/transformer/decoder.h"
#include "models/transformer/gpt2_config.h"
#include "models/transformer/gpt2_names.h"

namespace lockstep {
namespace {

LinearLayer::Options Started(const Init& init) {
  return {.bias = Bias::kYes, .weight_init = &init};
}

class EmbeddingBlock : public Block {
 public:
  explicit EmbeddingBlock(const TransformerOptions& options)
      : Block("embedding"),
        token_(
            AddChild<EmbeddingLayer>("token", options.vocabulary, options.width, InitOfMatrices())),
        position_(
            AddChild<PositionLayer>("position", options.context, options.width, InitOfMatrices())),
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
    const Variable y = qkv_.ProbedAttention(pass, name() + ".core",
                                            Operate(pass, "attention", {qkv_(pass, norm_(pass, x))},
                                                    [attention](Pass& run, const Variables& qkv) {
                                                      return Attend(run, qkv[0], attention);
                                                    }));
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
        attention_(AddChild<AttentionBranch>("attention", options, InitOfMatrices(),
                                             InitOfBranchEnds(options.layers))),
        mlp_(AddChild<MlpBranch>("network", options, InitOfMatrices(),
                                 InitOfBranchEnds(options.layers))) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    return {mlp_(pass, attention_(pass, inputs[0]))};
  }

 private:
  AttentionBranch& attention_;
  MlpBranch& mlp_;
};

class HeadBlock : public Block {
 public:
  HeadBlock(const TransformerOptions& options, Parameter& token_weight)
      : Block("head"),
        norm_(AddChild<LayerNormLayer>("norm", options.width)),
        logits_(AddChild<LogitsLayer>("logits", token_weight)) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    return {logits_(pass, norm_(pass, inputs[0]))};
  }

 private:
  LayerNormLayer& norm_;
  LogitsLayer& logits_;
};

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
  const int64_t square = options.width * options.width;
  StatePlanAndCosts({.layers = options.layers,
                     .width = options.width,
                     .context = options.context,
                     .vocabulary = options.vocabulary,
                     .attention_weights = 4 * square,
                     .mlp_weights = 8 * square,
                     .first_of_mlp = "up"},
                    model);
  model.published = Gpt2Names(options.layers);
  model.published.config = Gpt2Config(options);
  model.published.check_config = [options](const std::string& text) {
    return CheckGpt2Config(text, options);
  };
  return model;
}

}  // namespace lockstep
