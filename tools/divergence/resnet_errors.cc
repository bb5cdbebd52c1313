#include "tools/divergence/resnet_errors.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/kernels/reference.h"

namespace lockstep {
namespace {

using reference::Array;
using reference::Result;

constexpr Window kStemPool = {.kernel = 3, .stride = 2, .padding = 1};

bool IsProjection(const std::string& unit) { return absl::EndsWith(unit, ".shortcut"); }

// The units of the model, in the order of computation: "stem.unit", "layer1.0.unit1", ...
std::vector<std::string> Units(const ProbedStep& step) {
  std::vector<std::string> units;
  for (const std::string& block : step.blocks()) {
    for (const char* unit : {".unit", ".shortcut", ".unit1", ".unit2", ".unit3"}) {
      if (step.Has(block + unit + ".conv.weight")) units.push_back(block + unit);
    }
  }
  return units;
}

// Judges one micro-batch of a step.
class ResNetJudge {
 public:
  ResNetJudge(const ResNetSemantics& model, ProbedStep& step, int64_t number)
      : model_(model), step_(step), number_(number) {}

  absl::Status Judge() {
    LS_ASSIGN_OR_RETURN(const Array targets,
                        step_.Read(ProbeKind::kForward, "batch.targets", number_));
    if (!targets.defined()) return absl::OkStatus();
    samples_ = targets.elements();
    for (const std::string& block : step_.blocks()) {
      if (block == "stem") {
        LS_RETURN_IF_ERROR(JudgeStem());
      } else if (block == "head") {
        LS_RETURN_IF_ERROR(JudgeHead());
      } else {
        LS_RETURN_IF_ERROR(JudgeBlock(block));
      }
    }
    LS_RETURN_IF_ERROR(JudgeHeadBackward(targets));
    for (size_t i = step_.blocks().size(); i-- > 0;) {
      const std::string& block = step_.blocks()[i];
      if (block == "stem") {
        LS_RETURN_IF_ERROR(JudgeStemBackward());
      } else if (block != "head") {
        LS_RETURN_IF_ERROR(JudgeBlockBackward(block));
      }
    }
    return absl::OkStatus();
  }

 private:
  bool has_pool() const { return model_.stem == ResNetOptions::Stem::kImageNet; }

  // What a block hands on, which the record has under the name of its last layer.
  std::string Out(const std::string& block) const {
    if (block == "stem") return has_pool() ? "stem" : "stem.unit.norm";
    return LastUnit(block) + ".norm";
  }
  std::string LastUnit(const std::string& block) const {
    return block + (step_.Has(block + ".unit3.conv.weight") ? ".unit3" : ".unit2");
  }
  // What the block takes: what the one before it hands on.
  std::string In(const std::string& block) const {
    std::string before;
    for (const std::string& each : step_.blocks()) {
      if (each == block) break;
      before = each;
    }
    return Out(before);
  }
  // The units between a block's input and its output, without the shortcut.
  std::vector<std::string> MainUnits(const std::string& block) const {
    std::vector<std::string> units = {block + ".unit1", block + ".unit2"};
    if (LastUnit(block) != units.back()) units.push_back(LastUnit(block));
    return units;
  }

  // Kernels are square; padding keeps the image, and strides stand where a stage begins: in the
  // first 3x3 convolution and in the shortcut.
  Window WindowOf(const std::string& unit) const {
    const auto kernel = static_cast<int>(step_.Weight(unit + ".conv.weight").shape[1]);
    Window window = {.kernel = kernel, .stride = 1, .padding = kernel / 2};
    if (unit == "stem.unit") {
      window.stride = has_pool() ? 2 : 1;
      return window;
    }
    const std::string block = unit.substr(0, unit.rfind('.'));
    const bool begins_stage = absl::EndsWith(block, ".0") && block != "layer1.0";
    const bool is_bottleneck = step_.Has(block + ".unit3.conv.weight");
    const bool is_strided =
        IsProjection(unit) || unit == block + (is_bottleneck ? ".unit2" : ".unit1");
    if (begins_stage && is_strided) window.stride = 2;
    return window;
  }

  // Rows of pixels as [samples, height, width, channels].
  absl::StatusOr<Array> AsImages(Array rows) const {
    if (!rows.defined()) return rows;
    const int64_t channels = rows.shape[-1], pixels = rows.elements() / channels / samples_;
    const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(pixels))));
    if (samples_ * side * side * channels != rows.elements()) {
      return InvalidArgument("micro-batch ", number_, " has ", samples_, " targets, but ",
                             rows.elements() / channels,
                             " rows of pixels, which are not as many square images");
    }
    return Array({samples_, side, side, channels}, std::move(rows.value));
  }
  absl::StatusOr<Array> Forward(const std::string& place) const {
    LS_ASSIGN_OR_RETURN(Array rows, step_.Read(ProbeKind::kForward, place, number_));
    return AsImages(std::move(rows));
  }
  absl::StatusOr<Array> Backward(const std::string& place) const {
    LS_ASSIGN_OR_RETURN(Array rows, step_.Read(ProbeKind::kBackward, place, number_));
    return AsImages(std::move(rows));
  }
  absl::Status HoldForward(const std::string& place, const Result& expected) {
    return step_.Hold(ProbeKind::kForward, place, number_, expected);
  }
  absl::Status HoldBackward(const std::string& place, const Result& expected) {
    return step_.Hold(ProbeKind::kBackward, place, number_, expected);
  }

  // --- forward ----------------------------------------------------------------------------------

  // The convolution alone; places that were not recorded are not judged.
  absl::Status JudgeConvolution(const std::string& unit, const std::string& in) {
    LS_ASSIGN_OR_RETURN(const Array x, Forward(in));
    if (!x.defined() || !step_.Has(unit + ".conv.weight")) return absl::OkStatus();
    return HoldForward(
        unit + ".conv",
        reference::Convolution(x, step_.Weight(unit + ".conv.weight"), Array(), WindowOf(unit)));
  }
  absl::Status JudgeNorm(const std::string& unit, const Array& residual, Activation activation) {
    LS_ASSIGN_OR_RETURN(const Array x, Forward(unit + ".conv"));
    if (!x.defined() || !step_.Has(unit + ".norm.weight")) return absl::OkStatus();
    return HoldForward(unit + ".norm",
                       reference::BatchNorm(x, step_.Weight(unit + ".norm.weight"),
                                            step_.Weight(unit + ".norm.bias"), residual,
                                            model_.norm_epsilon, activation)
                           .y);
  }

  absl::Status JudgeStem() {
    LS_RETURN_IF_ERROR(JudgeConvolution("stem.unit", "batch.inputs"));
    LS_RETURN_IF_ERROR(JudgeNorm("stem.unit", Array(), Activation::kRelu));
    LS_ASSIGN_OR_RETURN(const Array x, Forward("stem.unit.norm"));
    if (!has_pool() || !x.defined()) return absl::OkStatus();
    return HoldForward("stem", reference::MaxPool(x, kStemPool));
  }

  absl::Status JudgeBlock(const std::string& block) {
    const std::string shortcut = block + ".shortcut";
    const bool projects = step_.Has(shortcut + ".conv.weight");
    if (projects) {
      LS_RETURN_IF_ERROR(JudgeConvolution(shortcut, In(block)));
      LS_RETURN_IF_ERROR(JudgeNorm(shortcut, Array(), Activation::kNone));
    }
    std::string in = In(block);
    for (const std::string& unit : MainUnits(block)) {
      LS_RETURN_IF_ERROR(JudgeConvolution(unit, in));
      in = unit + ".norm";
      if (unit != LastUnit(block)) {
        LS_RETURN_IF_ERROR(JudgeNorm(unit, Array(), Activation::kRelu));
      }
    }
    LS_ASSIGN_OR_RETURN(const Array residual, Forward(projects ? shortcut + ".norm" : In(block)));
    if (!residual.defined()) return absl::OkStatus();
    return JudgeNorm(LastUnit(block), residual, Activation::kRelu);
  }

  absl::Status JudgeHead() {
    LS_ASSIGN_OR_RETURN(const Array x, Forward(In("head")));
    if (!x.defined() || !step_.Has("head.fc.weight")) return absl::OkStatus();
    Result logits =
        reference::Linear(reference::GlobalAveragePool(x), step_.Weight("head.fc.weight"),
                          step_.Weight("head.fc.bias"), Array());
    Widen(logits);
    return HoldForward("head.fc", logits);
  }

  // --- backward ---------------------------------------------------------------------------------

  absl::Status JudgeHeadBackward(const Array& targets) {
    LS_ASSIGN_OR_RETURN(const Array logits, step_.Read(ProbeKind::kForward, "head.fc", number_));
    LS_ASSIGN_OR_RETURN(const Array dlogits, step_.Read(ProbeKind::kBackward, "head.fc", number_));
    LS_ASSIGN_OR_RETURN(const Array x, Forward(In("head")));
    if (logits.defined()) {
      const std::vector<int32_t> classes(targets.value.begin(), targets.value.end());
      LS_RETURN_IF_ERROR(HoldBackward(
          "head.fc", reference::SoftmaxCrossEntropy(logits, classes, 1 / step_.Targets()).dlogits));
    }
    if (!dlogits.defined() || !x.defined() || !step_.Has("head.fc.weight")) {
      return absl::OkStatus();
    }
    auto gradients = reference::LinearBackward(dlogits, reference::GlobalAveragePool(x),
                                               step_.Weight("head.fc.weight"));
    Widen(gradients.dw);
    step_.AddGradient("head.fc.weight", gradients.dw);
    step_.AddGradient("head.fc.bias", gradients.dbias);
    // Pooling is linear, so errors of what it passes on spread as the numbers do.
    Result dx = reference::GlobalAveragePoolBackward(gradients.dx, x.shape);
    dx.magnitude = reference::GlobalAveragePoolBackward(
                       Array(gradients.dx.shape, gradients.dx.magnitude), x.shape)
                       .value;
    return HoldBackward(In("head"), dx);
  }

  // The gradients of a unit, from `dy`, that of its output: holds the convolution's, and gives
  // those of the input, from the recorded gradient of the convolution, and of what was added before
  // the activation. Undefined where something was not recorded.
  struct UnitGradients {
    Result dx, dresidual;
  };
  absl::StatusOr<UnitGradients> JudgeUnitBackward(const std::string& unit, const std::string& in,
                                                  Activation activation) {
    LS_ASSIGN_OR_RETURN(const Array x, Forward(in));
    LS_ASSIGN_OR_RETURN(const Array conv, Forward(unit + ".conv"));
    LS_ASSIGN_OR_RETURN(const Array y, Forward(unit + ".norm"));
    LS_ASSIGN_OR_RETURN(const Array dy, Backward(unit + ".norm"));
    LS_ASSIGN_OR_RETURN(const Array dconv, Backward(unit + ".conv"));
    UnitGradients gradients;
    if (!step_.Has(unit + ".norm.weight") || !step_.Has(unit + ".conv.weight")) return gradients;
    if (conv.defined() && y.defined() && dy.defined()) {
      auto norm = reference::BatchNormBackward(conv, step_.Weight(unit + ".norm.weight"),
                                               model_.norm_epsilon,
                                               activation == Activation::kRelu ? y : Array(), dy);
      LS_RETURN_IF_ERROR(HoldBackward(unit + ".conv", norm.dx));
      step_.AddGradient(unit + ".norm.weight", norm.dscale);
      step_.AddGradient(unit + ".norm.bias", norm.dshift);
      gradients.dresidual = std::move(norm.dresidual);
    }
    if (x.defined() && dconv.defined()) {
      auto convolution = reference::ConvolutionBackward(
          dconv, x, step_.Weight(unit + ".conv.weight"), WindowOf(unit));
      step_.AddGradient(unit + ".conv.weight", convolution.dw);
      gradients.dx = std::move(convolution.dx);
    }
    return gradients;
  }

  absl::Status JudgeBlockBackward(const std::string& block) {
    const std::vector<std::string> units = MainUnits(block);
    LS_ASSIGN_OR_RETURN(
        UnitGradients last,
        JudgeUnitBackward(units.back(), units[units.size() - 2] + ".norm", Activation::kRelu));
    Result dx = std::move(last.dx);
    for (size_t i = units.size() - 1; i-- > 0;) {
      LS_RETURN_IF_ERROR(HoldBackward(units[i] + ".norm", dx));
      const std::string in = i == 0 ? In(block) : units[i - 1] + ".norm";
      LS_ASSIGN_OR_RETURN(UnitGradients unit, JudgeUnitBackward(units[i], in, Activation::kRelu));
      dx = std::move(unit.dx);
    }
    const std::string shortcut = block + ".shortcut";
    Result dshortcut = std::move(last.dresidual);
    if (step_.Has(shortcut + ".conv.weight")) {
      LS_RETURN_IF_ERROR(HoldBackward(shortcut + ".norm", dshortcut));
      LS_ASSIGN_OR_RETURN(UnitGradients projected,
                          JudgeUnitBackward(shortcut, In(block), Activation::kNone));
      dshortcut = std::move(projected.dx);
    }
    if (!dx.defined() || !dshortcut.defined()) return absl::OkStatus();
    AddTo(dx, dshortcut);
    return HoldBackward(In(block), dx);
  }

  absl::Status JudgeStemBackward() {
    if (has_pool()) {
      LS_ASSIGN_OR_RETURN(const Array x, Forward("stem.unit.norm"));
      LS_ASSIGN_OR_RETURN(const Array dy, Backward("stem"));
      if (x.defined() && dy.defined()) {
        LS_RETURN_IF_ERROR(
            HoldBackward("stem.unit.norm", reference::MaxPoolBackward(x, kStemPool, dy)));
      }
    }
    return JudgeUnitBackward("stem.unit", "batch.inputs", Activation::kRelu).status();
  }

  const ResNetSemantics& model_;
  ProbedStep& step_;
  const int64_t number_;
  int64_t samples_ = 0;
};

// Mean and biased variance of each channel of one micro-batch.
struct BatchStatistics {
  int64_t rows = 0;
  Result mean, variance;
};

BatchStatistics Measure(const Array& x) {
  const Shape channels({x.shape[-1]});
  auto normalized =
      reference::BatchNorm(x, Array(channels), Array(channels), Array(), 1, Activation::kNone);
  return {.rows = x.shape.rows(),
          .mean = std::move(normalized.mean),
          .variance = std::move(normalized.spread)};
}

Result Scaled(Result x, double factor) {
  for (double& value : x.value) value *= factor;
  for (double& magnitude : x.magnitude) magnitude *= std::abs(factor);
  return x;
}

Result Square(Result x) {
  for (size_t i = 0; i < x.value.size(); ++i) {
    x.magnitude[i] *= std::abs(x.value[i]);
    x.value[i] *= x.value[i];
  }
  return x;
}

// The estimate moves by `momentum` towards `x`, element by element.
void Move(double momentum, const Result& x, Result& estimate) {
  estimate = Scaled(std::move(estimate), 1 - momentum);
  AddTo(estimate, Scaled(x, momentum));
}

// The biased variance of `rows` rows as the unbiased one.
Result Unbiased(const Result& variance, int64_t rows) {
  return Scaled(variance, static_cast<double>(rows) / static_cast<double>(rows - 1));
}

// The statistics of all rows together.
BatchStatistics Together(const std::vector<BatchStatistics>& parts) {
  BatchStatistics all = {.mean = Result(parts[0].mean.shape),
                         .variance = Result(parts[0].mean.shape)};
  for (const BatchStatistics& part : parts) all.rows += part.rows;
  for (const BatchStatistics& part : parts) {
    const double share = static_cast<double>(part.rows) / static_cast<double>(all.rows);
    AddTo(all.mean, Scaled(part.mean, share));
    AddTo(all.variance, Scaled(part.variance, share));
    AddTo(all.variance, Scaled(Square(part.mean), share));
  }
  AddTo(all.variance, Scaled(Square(all.mean), -1));
  return all;
}

}  // namespace

absl::Status JudgeMicroBatch(const ResNetSemantics& model, ProbedStep& step, int64_t number) {
  return ResNetJudge(model, step, number).Judge();
}

absl::Status JudgeRunningStatistics(const ResNetSemantics& model, ProbedStep& step) {
  for (const std::string& unit : Units(step)) {
    const std::string of_mean = unit + ".norm.running_mean",
                      of_variance = unit + ".norm.running_var";
    std::vector<BatchStatistics> parts;
    bool is_complete = step.Has(of_mean) && step.Has(of_variance);
    for (const int64_t number : step.micro_batches()) {
      LS_ASSIGN_OR_RETURN(const Array x, step.Read(ProbeKind::kForward, unit + ".conv", number));
      is_complete = is_complete && x.defined();
      if (is_complete) parts.push_back(Measure(x));
    }
    if (!is_complete) continue;
    if (model.estimate == ResNetSemantics::Estimate::kOfTheStep) parts = {Together(parts)};
    Result mean(step.Weight(of_mean)), variance(step.Weight(of_variance));
    for (const BatchStatistics& part : parts) {
      Move(model.momentum, part.mean, mean);
      Move(model.momentum, Unbiased(part.variance, part.rows), variance);
    }
    LS_RETURN_IF_ERROR(step.Hold(ProbeKind::kStateAfter, of_mean, -1, mean));
    LS_RETURN_IF_ERROR(step.Hold(ProbeKind::kStateAfter, of_variance, -1, variance));
  }
  return absl::OkStatus();
}

}  // namespace lockstep
