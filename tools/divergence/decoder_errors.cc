#include "tools/divergence/decoder_errors.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/base/token_order.h"
#include "core/kernels/reference.h"

namespace lockstep {
namespace {

using reference::Array;
using reference::Result;

std::vector<int32_t> Ids(const Array& ids) { return {ids.value.begin(), ids.value.end()}; }

// Judges one micro-batch of a step.
class DecoderJudge {
 public:
  DecoderJudge(const DecoderSemantics& model, ProbedStep& step, int64_t number)
      : model_(model), step_(step), leaves_(step.token_leaves()), number_(number) {
    for (const std::string& block : step.blocks()) {
      if (block != "embedding" && block != "head") blocks_.push_back(block);
    }
  }

  absl::Status Judge() {
    LS_RETURN_IF_ERROR(JudgeForward());
    return JudgeBackward();
  }

 private:
  bool is_gpt() const { return model_.family == DecoderSemantics::Family::kGpt2; }

  Array W(const std::string& name) const { return step_.Weight(name); }
  bool Has(const std::string& parameter) const { return step_.Has(parameter); }
  // Whether the parameters of a block were recorded: patterns of places may leave a block out.
  bool HasBlock(const std::string& block) const {
    return Has(block + ".attention.norm.weight") && Has(block + ".attention.qkv.weight") &&
           Has(block + ".attention.projection.weight") && Has(block + ".network.norm.weight") &&
           Has(block + ".network.down.weight");
  }
  absl::StatusOr<Array> Forward(const std::string& place) const {
    return step_.Read(ProbeKind::kForward, place, number_);
  }
  absl::StatusOr<Array> Backward(const std::string& place) const {
    return step_.Read(ProbeKind::kBackward, place, number_);
  }

  Result Norm(const Array& x, const std::string& place) const {
    if (is_gpt()) {
      return reference::LayerNorm(x, W(place + ".weight"), W(place + ".bias"), model_.norm_epsilon)
          .y;
    }
    return reference::RmsNorm(x, W(place + ".weight"), model_.norm_epsilon).y;
  }

  // The gradient of a norm's input; those of its parameters join the step's.
  Result NormBackward(const Array& x, const std::string& place, const Array& dy) {
    const Array scale = W(place + ".weight");
    const auto gradients = is_gpt()
                               ? reference::LayerNormBackward(x, scale, model_.norm_epsilon, dy)
                               : reference::RmsNormBackward(x, scale, model_.norm_epsilon, dy);
    step_.AddGradient(place + ".weight", gradients.dscale);
    if (is_gpt()) step_.AddGradient(place + ".bias", gradients.dshift);
    return gradients.dx;
  }

  // Where the factor x of a product comes from.
  enum class Factor { kRecorded, kRecomputed };
  Result LinearBackward(const Array& dy, const Array& x, const std::string& place,
                        Factor factor = Factor::kRecorded) {
    auto gradients = reference::LinearBackward(dy, x, W(place + ".weight"));
    if (factor == Factor::kRecomputed) Widen(gradients.dw);
    step_.AddGradient(place + ".weight", gradients.dw);
    if (is_gpt()) step_.AddGradient(place + ".bias", gradients.dbias);
    return std::move(gradients.dx);
  }

  Attention Heads() const {
    const auto has_weight = [this](const std::string& block) { return HasBlock(block); };
    const auto block = std::find_if(blocks_.begin(), blocks_.end(), has_weight);
    const Array qkv = W(*block + ".attention.qkv.weight");
    const int64_t heads = model_.heads + 2 * model_.key_heads;
    return {.heads = model_.heads,
            .head_width = qkv.shape[0] / heads,
            .dropout = {},
            .total_heads = model_.heads,
            .key_heads = model_.key_heads};
  }

  // [rows, features] as [leaves * samples, time of a leaf, features].
  Array AsSequences(const Array& x) const {
    const int64_t time = model_.context / leaves_;
    return Array({x.shape.rows() / time, time, x.shape[-1]}, x.value);
  }

  // Positions of the rows, in the order of memory.
  std::vector<int32_t> Positions(int64_t rows) const {
    const TokenOrder order = {
        .samples = rows / model_.context, .time = model_.context, .leaves = leaves_};
    std::vector<int32_t> positions;
    for (int64_t leaf = 0; leaf < leaves_; ++leaf) {
      for (int64_t sample = 0; sample < order.samples; ++sample) {
        for (int64_t place = 0; place < order.leaf_time(); ++place) {
          positions.push_back(static_cast<int32_t>(order.PositionOf(leaf, place)));
        }
      }
    }
    return positions;
  }

  // Queries and keys turned by their positions; as they are without rotary positions.
  Result Turned(const Array& x, Rotation::Direction direction) const {
    if (model_.frequencies.empty()) return Result(x);
    const auto half = static_cast<int64_t>(model_.frequencies.size());
    Array table({model_.context, 2 * half});
    for (int64_t p = 0; p < model_.context; ++p) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(p) * model_.frequencies[static_cast<size_t>(i)];
        table.value[static_cast<size_t>(p * 2 * half + i)] = std::cos(angle);
        table.value[static_cast<size_t>(p * 2 * half + half + i)] = std::sin(angle);
      }
    }
    return reference::Rotate(
        {.heads = model_.heads + model_.key_heads, .head_width = 2 * half, .direction = direction},
        x, Positions(x.shape.rows()), table);
  }

  // What the MLP's last layer is multiplied with.
  Result Active(const Array& pre) const {
    return is_gpt() ? reference::Gelu(pre) : reference::SwiGlu(pre);
  }

  // The gradient before the activation. It is linear in the one behind, whose errors it carries on.
  Result ActiveBackward(const Array& pre, const Result& dactive) const {
    const auto backward = [&](const Array& dy) {
      return is_gpt() ? reference::GeluBackward(pre, dy) : reference::SwiGluBackward(pre, dy);
    };
    Result dpre = backward(dactive);
    dpre.magnitude = backward(Array(dactive.shape, dactive.magnitude)).magnitude;
    Widen(dpre);
    return dpre;
  }

  std::string FirstOfMlp(const std::string& block) const {
    return block + (is_gpt() ? ".network.up" : ".network.gate_up");
  }

  // The first layer of the MLP before its activation: as recorded, or recomputed.
  absl::StatusOr<Array> Pre(const std::string& block, const Array& norm) const {
    const std::string place = FirstOfMlp(block);
    LS_ASSIGN_OR_RETURN(const Array recorded, Forward(place));
    if (recorded.defined()) return recorded;
    return reference::Linear(norm, W(place + ".weight"), W(place + ".bias"), Array());
  }

  absl::Status JudgeForward() {
    const auto hold = [this](const std::string& place, const Result& expected) {
      return step_.Hold(ProbeKind::kForward, place, number_, expected);
    };
    LS_ASSIGN_OR_RETURN(const Array inputs, Forward("batch.inputs"));
    Result tokens;
    if (Has("embedding.token.weight")) {
      tokens = reference::Embedding(Ids(inputs), W("embedding.token.weight"));
      LS_RETURN_IF_ERROR(hold("embedding.token", tokens));
    }
    std::string before = is_gpt() ? "embedding.position" : "embedding.token";
    if (is_gpt() && tokens.defined() && Has("embedding.position.weight")) {
      const std::vector<int32_t> positions = Positions(inputs.elements());
      const Result added = reference::Embedding(positions, W("embedding.position.weight"));
      LS_RETURN_IF_ERROR(hold(before, reference::Add(tokens, added)));
    }
    for (const std::string& block : blocks_) {
      LS_ASSIGN_OR_RETURN(const Array x, Forward(before));
      LS_ASSIGN_OR_RETURN(const Array norm, Forward(block + ".attention.norm"));
      LS_ASSIGN_OR_RETURN(const Array qkv, Forward(block + ".attention.qkv"));
      LS_ASSIGN_OR_RETURN(const Array core, Forward(block + ".attention.core"));
      LS_ASSIGN_OR_RETURN(const Array residual, Forward(block + ".attention.projection"));
      LS_ASSIGN_OR_RETURN(const Array second, Forward(block + ".network.norm"));
      const auto linear = [&](const Array& in, const std::string& place, const Array& addend) {
        return reference::Linear(in, W(place + ".weight"), W(place + ".bias"), addend);
      };
      if (!HasBlock(block)) {  // only some places are probed
        before = block + ".network.down";
        continue;
      }
      if (x.defined()) {
        LS_RETURN_IF_ERROR(hold(block + ".attention.norm", Norm(x, block + ".attention.norm")));
      }
      if (norm.defined()) {
        LS_RETURN_IF_ERROR(
            hold(block + ".attention.qkv", linear(norm, block + ".attention.qkv", Array())));
      }
      if (qkv.defined()) {
        const Result turned = Turned(qkv, Rotation::Direction::kForward);
        Result attended = reference::AttentionForward(Heads(), AsSequences(turned), leaves_).y;
        if (!model_.frequencies.empty()) Widen(attended);
        LS_RETURN_IF_ERROR(hold(block + ".attention.core", attended));
      }
      if (core.defined() && x.defined()) {
        LS_RETURN_IF_ERROR(hold(block + ".attention.projection",
                                linear(core, block + ".attention.projection", x)));
      }
      if (residual.defined()) {
        LS_RETURN_IF_ERROR(hold(block + ".network.norm", Norm(residual, block + ".network.norm")));
      }
      if (second.defined() && residual.defined()) {
        const std::string first = FirstOfMlp(block);
        LS_RETURN_IF_ERROR(hold(first, linear(second, first, Array())));
        LS_ASSIGN_OR_RETURN(const Array pre, Pre(block, second));
        Result down = linear(Active(pre), block + ".network.down", residual);
        Widen(down);
        LS_RETURN_IF_ERROR(hold(block + ".network.down", down));
      }
      before = block + ".network.down";
    }
    LS_ASSIGN_OR_RETURN(const Array last, Forward(before));
    LS_ASSIGN_OR_RETURN(const Array norm, Forward("head.norm"));
    if (last.defined() && Has("head.norm.weight")) {
      LS_RETURN_IF_ERROR(hold("head.norm", Norm(last, "head.norm")));
    }
    if (norm.defined() && Has(Head())) {
      LS_RETURN_IF_ERROR(hold("head.logits", reference::Linear(norm, W(Head()), Array(), Array())));
    }
    return absl::OkStatus();
  }

  std::string Head() const {
    return W("head.logits.weight").defined() ? "head.logits.weight" : "embedding.token.weight";
  }

  absl::Status JudgeBackward() {
    const auto hold = [this](const std::string& place, const Result& expected) {
      return step_.Hold(ProbeKind::kBackward, place, number_, expected);
    };
    LS_ASSIGN_OR_RETURN(const Array logits, Forward("head.logits"));
    LS_ASSIGN_OR_RETURN(const Array targets, Forward("batch.targets"));
    LS_ASSIGN_OR_RETURN(const Array dlogits, Backward("head.logits"));
    LS_ASSIGN_OR_RETURN(const Array head_norm, Forward("head.norm"));
    LS_ASSIGN_OR_RETURN(const Array dhead_norm, Backward("head.norm"));
    const bool has_blocks =
        std::all_of(blocks_.begin(), blocks_.end(),
                    [this](const std::string& block) { return HasBlock(block); });
    if (!logits.defined() || !dlogits.defined() || !dhead_norm.defined() || !head_norm.defined() ||
        !has_blocks || !Has(Head()) || !Has("embedding.token.weight")) {
      return absl::OkStatus();  // only some places are probed
    }
    LS_RETURN_IF_ERROR(
        hold("head.logits",
             reference::SoftmaxCrossEntropy(logits, Ids(targets), 1 / step_.Targets()).dlogits));
    auto of_head = reference::LinearBackward(dlogits, head_norm, W(Head()));
    step_.AddGradient(Head(), of_head.dw);
    LS_RETURN_IF_ERROR(hold("head.norm", of_head.dx));

    const std::string first = is_gpt() ? "embedding.position" : "embedding.token";
    const auto out = [&](size_t i) { return i == 0 ? first : blocks_[i - 1] + ".network.down"; };
    LS_ASSIGN_OR_RETURN(const Array last, Forward(out(blocks_.size())));
    LS_RETURN_IF_ERROR(hold(out(blocks_.size()), NormBackward(last, "head.norm", dhead_norm)));
    for (size_t i = blocks_.size(); i-- > 0;) {
      LS_RETURN_IF_ERROR(JudgeBlockBackward(blocks_[i], out(i), out(i + 1)));
    }
    LS_ASSIGN_OR_RETURN(const Array dx, Backward(first));
    LS_ASSIGN_OR_RETURN(const Array inputs, Forward("batch.inputs"));
    if (!dx.defined()) return absl::OkStatus();
    const std::string table = "embedding.token.weight";
    step_.AddGradient(table, reference::EmbeddingBackward(Ids(inputs), dx, W(table).shape));
    if (is_gpt()) {
      LS_RETURN_IF_ERROR(hold("embedding.token", Result(dx)));
      const std::string position = "embedding.position.weight";
      step_.AddGradient(position, reference::EmbeddingBackward(Positions(dx.shape.rows()), dx,
                                                               W(position).shape));
    }
    return absl::OkStatus();
  }

  absl::Status JudgeBlockBackward(const std::string& block, const std::string& in,
                                  const std::string& out) {
    const auto hold = [this](const std::string& place, const Result& expected) {
      return step_.Hold(ProbeKind::kBackward, place, number_, expected);
    };
    const std::string attention = block + ".attention", mlp = block + ".network";
    LS_ASSIGN_OR_RETURN(const Array x, Forward(in));
    LS_ASSIGN_OR_RETURN(const Array norm, Forward(attention + ".norm"));
    LS_ASSIGN_OR_RETURN(const Array qkv, Forward(attention + ".qkv"));
    LS_ASSIGN_OR_RETURN(const Array core, Forward(attention + ".core"));
    LS_ASSIGN_OR_RETURN(const Array residual, Forward(attention + ".projection"));
    LS_ASSIGN_OR_RETURN(const Array second, Forward(mlp + ".norm"));
    LS_ASSIGN_OR_RETURN(const Array dy, Backward(out));
    LS_ASSIGN_OR_RETURN(const Array dpre, Backward(FirstOfMlp(block)));
    LS_ASSIGN_OR_RETURN(const Array dsecond, Backward(mlp + ".norm"));
    LS_ASSIGN_OR_RETURN(const Array dresidual, Backward(attention + ".projection"));
    LS_ASSIGN_OR_RETURN(const Array dcore, Backward(attention + ".core"));
    LS_ASSIGN_OR_RETURN(const Array dqkv, Backward(attention + ".qkv"));
    LS_ASSIGN_OR_RETURN(const Array dnorm, Backward(attention + ".norm"));
    for (const Array* each : {&x, &norm, &qkv, &core, &residual, &second, &dy, &dsecond, &dresidual,
                              &dcore, &dqkv, &dnorm}) {
      if (!each->defined()) return absl::OkStatus();  // only some places are probed
    }
    // The MLP.
    LS_ASSIGN_OR_RETURN(const Array pre, Pre(block, second));
    const Result dactive = LinearBackward(dy, Active(pre), mlp + ".down", Factor::kRecomputed);
    const Result dfirst = ActiveBackward(pre, dactive);
    LS_RETURN_IF_ERROR(hold(FirstOfMlp(block), dfirst));
    Result of_second = LinearBackward(dpre.defined() ? dpre : dfirst, second, FirstOfMlp(block));
    if (!dpre.defined()) Widen(of_second);
    LS_RETURN_IF_ERROR(hold(mlp + ".norm", of_second));
    Result onward = NormBackward(residual, mlp + ".norm", dsecond);
    AddTo(onward, Result(dy));
    LS_RETURN_IF_ERROR(hold(attention + ".projection", onward));
    // Attention.
    LS_RETURN_IF_ERROR(
        hold(attention + ".core", LinearBackward(dresidual, core, attention + ".projection")));
    const Result turned = Turned(qkv, Rotation::Direction::kForward);
    Result dturned =
        reference::AttentionBackward(Heads(), AsSequences(turned), AsSequences(dcore), leaves_);
    if (!model_.frequencies.empty()) {
      const Result rotated = Turned(dturned, Rotation::Direction::kBackward);
      double largest = 0;
      for (const double magnitude : dturned.magnitude) largest = std::max(largest, magnitude);
      dturned.value = rotated.value;
      for (double& magnitude : dturned.magnitude) magnitude = largest;  // turned into each other
    }
    LS_RETURN_IF_ERROR(hold(attention + ".qkv", dturned));
    LS_RETURN_IF_ERROR(hold(attention + ".norm", LinearBackward(dqkv, norm, attention + ".qkv")));
    Result before = NormBackward(x, attention + ".norm", dnorm);
    AddTo(before, Result(dresidual));
    return hold(in, before);
  }

  const DecoderSemantics& model_;
  ProbedStep& step_;
  const int64_t leaves_;
  const int64_t number_;
  std::vector<std::string> blocks_;  // between embedding and head
};

}  // namespace

absl::Status JudgeMicroBatch(const DecoderSemantics& model, ProbedStep& step, int64_t number) {
  return DecoderJudge(model, step, number).Judge();
}

}  // namespace lockstep
