#include "models/transformer/transformer.h"

#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/nn/layers.h"
#include "glog/logging.h"

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
        dropout_(options.dropout),
        token_(AddChild<EmbeddingLayer>("token", options.vocabulary, options.width,
                                        Init::Normal(kStddev))),
        position_(AddChild<EmbeddingLayer>("position", options.context, options.width,
                                           Init::Normal(kStddev))) {}

  Parameter& token_weight() { return token_.weight(); }

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    Variable x = Embedding(pass.tape, inputs[0], token_.weight());
    x = AddPositions(pass.tape, x, position_.weight());
    return {ApplyDropout(pass.tape, DropoutAt(pass, name(), dropout_), x)};
  }

 private:
  float dropout_;
  EmbeddingLayer& token_;
  EmbeddingLayer& position_;
};

// x + dropout(proj(attention(norm(x))))
class AttentionBranch : public Module {
 public:
  AttentionBranch(std::string name, const TransformerOptions& options, const Init& init,
                  const Init& last_init)
      : Module(std::move(name)),
        heads_(options.heads),
        head_width_(options.width / options.heads),
        dropout_(options.dropout),
        norm_(AddChild<LayerNormLayer>("norm", options.width)),
        qkv_(AddChild<LinearLayer>("qkv", options.width, 3 * options.width, Started(init))),
        projection_(AddChild<LinearLayer>("projection", options.width, options.width,
                                          Started(last_init))) {}

  Variable operator()(Pass& pass, const Variable& x) {
    const Attention attention = {.heads = heads_,
                                 .head_width = head_width_,
                                 .dropout = DropoutAt(pass, name() + ".probabilities", dropout_),
                                 .total_heads = heads_};
    Variable y = SelfAttention(pass.tape, qkv_(pass, norm_(pass, x)), attention);
    const Dropout dropout = DropoutAt(pass, name(), dropout_);
    if (dropout.probability == 0) return projection_(pass, y, &x);
    return Add(pass.tape, x, ApplyDropout(pass.tape, dropout, projection_(pass, y)));
  }

 private:
  int64_t heads_, head_width_;
  float dropout_;
  LayerNormLayer& norm_;
  LinearLayer& qkv_;
  LinearLayer& projection_;
};

// x + dropout(down(gelu(up(norm(x)))))
class NetworkBranch : public Module {
 public:
  NetworkBranch(std::string name, const TransformerOptions& options, const Init& init,
                const Init& last_init)
      : Module(std::move(name)),
        dropout_(options.dropout),
        norm_(AddChild<LayerNormLayer>("norm", options.width)),
        up_(AddChild<LinearLayer>("up", options.width, 4 * options.width, Started(init))),
        down_(AddChild<LinearLayer>("down", 4 * options.width, options.width, Started(last_init))) {
  }

  Variable operator()(Pass& pass, const Variable& x) {
    const GeluNetwork network = {up_.weight(), *up_.bias(), down_.weight(), *down_.bias()};
    const Variable normalized = norm_(pass, x);
    const Dropout dropout = DropoutAt(pass, name(), dropout_);
    if (dropout.probability == 0) return ApplyGeluNetwork(pass.tape, normalized, network, &x);
    return Add(pass.tape, x,
               ApplyDropout(pass.tape, dropout,
                            ApplyGeluNetwork(pass.tape, normalized, network, nullptr)));
  }

 private:
  float dropout_;
  LayerNormLayer& norm_;
  LinearLayer& up_;
  LinearLayer& down_;
};

class TransformerBlock : public Block {
 public:
  TransformerBlock(std::string name, const TransformerOptions& options)
      : Block(std::move(name)),
        attention_(AddChild<AttentionBranch>("attention", options, Init::Normal(kStddev),
                                             LastInit(options))),
        network_(AddChild<NetworkBranch>("network", options, Init::Normal(kStddev),
                                         LastInit(options))) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    return {network_(pass, attention_(pass, inputs[0]))};
  }

 private:
  static Init LastInit(const TransformerOptions& options) {
    return Init::Normal(kStddev / std::sqrt(2.0f * static_cast<float>(options.layers)));
  }

  AttentionBranch& attention_;
  NetworkBranch& network_;
};

class HeadBlock : public Block {
 public:
  HeadBlock(const TransformerOptions& options, Parameter& token_weight)
      : Block("head"),
        norm_(AddChild<LayerNormLayer>("norm", options.width)),
        weight_(AddParameter("weight", token_weight.shape, token_weight.init)) {
    weight_.tied_to = &token_weight;
  }

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    return {Linear(pass.tape, norm_(pass, inputs[0]), weight_, nullptr)};
  }

 private:
  LayerNormLayer& norm_;
  Parameter& weight_;
};

// Of one sequence. A layer multiplies by every matrix, and has two products of queries or
// probabilities with keys or values.
void StateCosts(const TransformerOptions& options, Model& model) {
  const int64_t d = options.width, t = options.context;
  model.blocks.front()->cost = {0, t * d};
  for (size_t i = 1; i + 1 < model.blocks.size(); ++i) {
    model.blocks[i]->cost = {t * (12 * d * d + 2 * t * d), t * d};
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
      {"embedding.token", SplitStyle::kVocabulary}, {"head", SplitStyle::kVocabulary},
      {"*.attention.qkv", SplitStyle::kColumn},     {"*.attention.projection", SplitStyle::kRow},
      {"*.network.up", SplitStyle::kColumn},        {"*.network.down", SplitStyle::kRow},
  };
  StateCosts(options, model);
  return model;
}

}  // namespace lockstep
