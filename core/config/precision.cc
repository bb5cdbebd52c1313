#include "core/config/precision.h"

#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/config/config_reader.h"
#include "core/config/key_ranges.h"

namespace lockstep {

absl::StatusOr<Precision> ReadPrecision(const Config& config) {
  using Kind = LossScaleOptions::Kind;
  const std::vector<std::pair<std::string, DType>> dtypes = {
      {"fp32", DType::kF32}, {"fp16", DType::kF16}, {"bf16", DType::kBF16}};
  Precision precision;
  ConfigReader reader(config.Table("precision"));
  reader.ReadChoice("compute", &precision.compute, dtypes);
  precision.reduce = precision.compute;
  reader.ReadChoice("reduce", &precision.reduce, dtypes);
  bool tf32 = false;
  reader.Read("tf32", &tf32);
  if (tf32) precision.fp32_products = Fp32Products::kTf32;
  bool cudnn_attention = true;
  reader.Read("cudnn_attention", &cudnn_attention);
  if (!cudnn_attention) precision.attention = AttentionKernels::kOwn;
  LossScaleOptions& scale = precision.loss_scale;
  if (precision.compute == DType::kF16) scale.kind = Kind::kDynamic;
  reader.ReadChoice(
      "loss_scaling", &scale.kind,
      {{"none", Kind::kNone}, {"static", Kind::kStatic}, {"dynamic", Kind::kDynamic}});
  if (scale.kind != Kind::kNone) {
    reader.Read("initial_scale", &scale.initial, {.at_least = 1, .at_most = 0x1p126});
  }
  if (scale.kind == Kind::kDynamic) {
    reader.Read("growth", &scale.growth, {.greater_than = 1, .at_most = 0x1p126});
    reader.Read("backoff", &scale.backoff, {.greater_than = 0, .less_than = 1});
    reader.Read("interval", &scale.interval, {.at_least = 1, .at_most = kMostSteps});
  }
  LS_RETURN_IF_ERROR(reader.Finish());
  return precision;
}

}  // namespace lockstep
