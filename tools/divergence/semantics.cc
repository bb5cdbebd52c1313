#include "tools/divergence/semantics.h"

#include <cstdint>
#include <string>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/config/config_reader.h"
#include "core/config/settings.h"
#include "core/nn/positions.h"

namespace lockstep {
namespace {

// The decimal number that a float was read from. The nearest float to 0.999 is 1e-8 off; relative
// to 1 - 0.999 that is a thousand times more.
double Decimal(float number) {
  double exact = number;
  (void)absl::SimpleAtod(absl::StrCat(number), &exact);
  return exact;
}

absl::StatusOr<ModelSemantics> ReadDecoder(const Config& config, const std::string& kind) {
  DecoderSemantics semantics;
  ConfigReader data(config.Table("data"));
  data.Read("context", &semantics.context);
  ConfigReader model(config.Table("model"));
  model.Read("heads", &semantics.heads);
  semantics.key_heads = semantics.heads;
  if (kind == "transformer") return semantics;
  semantics.family = DecoderSemantics::Family::kLlama;
  model.Read("key_heads", &semantics.key_heads);
  model.Read("norm_epsilon", &semantics.norm_epsilon);
  RotaryOptions rotary;
  model.Read("rope_theta", &rotary.theta);
  int64_t width = 0;
  model.Read("width", &width);
  semantics.frequencies = RotaryFrequencies(width / semantics.heads, rotary);
  return semantics;
}

absl::StatusOr<ModelSemantics> ReadResNet(const Config& config) {
  ResNetSemantics semantics;
  std::string stem;
  ConfigReader model(config.Table("model"));
  model.Read("stem", &stem);
  if (stem == "imagenet") semantics.stem = ResNetOptions::Stem::kImageNet;
  bool is_deferred = true;
  ConfigReader train(config.Table("train"));
  train.Read("deferred_batch_norm", &is_deferred);
  if (!is_deferred) semantics.estimate = ResNetSemantics::Estimate::kOfEachMicroBatch;
  return semantics;
}

}  // namespace

absl::StatusOr<ModelSemantics> ReadModelSemantics(const Config& config) {
  std::string kind;
  double dropout = 0;
  ConfigReader model(config.Table("model"));
  model.Read("kind", &kind);
  model.Read("dropout", &dropout);
  const bool is_plain = dropout == 0 && config.Table("model.experts").value == nullptr &&
                        config.Table("model.rope_scaling").value == nullptr &&
                        config.Table("lora").value == nullptr;
  if (is_plain && kind == "resnet") return ReadResNet(config);
  if (is_plain && (kind == "transformer" || kind == "llama")) return ReadDecoder(config, kind);
  return absl::UnimplementedError(absl::StrCat(
      "model.kind is '", kind, "': operations are recomputed for GPT-2 (transformer), Llama and ",
      "ResNet, without dropout, experts, rope_scaling and adapters; set these off for the ",
      "comparison"));
}

absl::StatusOr<std::optional<OptimizerSemantics>> ReadOptimizerSemantics(const Config& config) {
  LS_ASSIGN_OR_RETURN(const Settings settings, ReadSettings(config));
  OptimizerSemantics semantics = {.rule = {},
                                  .weight_decay = Decimal(settings.optimizer.weight_decay),
                                  .clip_norm = settings.clip_norm,
                                  .learning_rate = [schedule = settings.schedule](int64_t step) {
                                    return schedule.RateAt(step);
                                  }};
  if (const auto* adamw = std::get_if<AdamW>(&settings.optimizer.rule)) {
    semantics.rule = AdamWSemantics{.beta1 = Decimal(adamw->beta1),
                                    .beta2 = Decimal(adamw->beta2),
                                    .epsilon = Decimal(adamw->epsilon)};
  } else if (const auto* sgd = std::get_if<Sgd>(&settings.optimizer.rule)) {
    semantics.rule = SgdSemantics{.momentum = Decimal(sgd->momentum), .nesterov = sgd->nesterov};
  } else {
    return std::nullopt;
  }
  return semantics;
}

}  // namespace lockstep
