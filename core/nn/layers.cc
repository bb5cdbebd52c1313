#include "core/nn/layers.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

float RootOf(int64_t fan) { return 1.0f / std::sqrt(static_cast<float>(fan)); }

Slice EvenSlice(int64_t dimension, int64_t extent, int size, int index) {
  return {.dimension = dimension, .ranges = {EvenRange(extent, size, index)}};
}

// Makes a table of rows, one for each word, the slice of a member: as many rows for each, the last
// ones' filled up with padding.
void SplitRows(Parameter& table, const SplitGroup& group) {
  const int64_t rows = table.shape[0], each = (rows + group.size() - 1) / group.size();
  const int64_t first = std::min(rows, each * group.index());
  const int64_t count = std::min(each, rows - first);
  table.slice = Slice{.dimension = 0, .ranges = {{.first = first, .count = count}}};
  table.padding = each - count;
}

absl::Status CheckDivides(const std::string& layer, int64_t count, const char* what, int ranks) {
  if (count % ranks == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("layer '", layer, "' has ", count, " ", what,
                                                 ", which do not divide among ", ranks, " ranks"));
}

}  // namespace

LinearLayer::LinearLayer(std::string name, int64_t in, int64_t out, const Options& options)
    : AdaptableLayer(std::move(name), {out, in},
                     options.weight_init ? *options.weight_init : Init::Uniform(RootOf(in))),
      bias_(options.bias == Bias::kNo
                ? nullptr
                : &AddParameter(
                      "bias", {out},
                      options.weight_init ? Init::Constant(0) : Init::Uniform(RootOf(in)))) {}

absl::Status LinearLayer::CheckSplit(SplitStyle style, int ranks) const {
  if (style == SplitStyle::kColumn) {
    return CheckDivides(name(), weight().shape[0], "output features", ranks);
  }
  if (style == SplitStyle::kRow) {
    return CheckDivides(name(), weight().shape[1], "input features", ranks);
  }
  return absl::OkStatus();
}

Slice LinearLayer::OutputSlice(int size, int index) const {
  return EvenSlice(0, weight().shape[0], size, index);
}

void LinearLayer::Split(SplitStyle style, SplitGroup& group) {
  style_ = style;
  group_ = &group;
  if (style == SplitStyle::kRow) {
    weight().slice = EvenSlice(1, weight().shape[1], group.size(), group.index());
    SplitAdapterInputs(*weight().slice);
  } else if (style == SplitStyle::kColumn || style == SplitStyle::kColumnGathered) {
    weight().slice = OutputSlice(group.size(), group.index());
    if (bias_ != nullptr) bias_->slice = weight().slice;
    SplitAdapterOutputs(*weight().slice);
  } else {
    style_ = SplitStyle::kReplicated;
    if (group.splits_sequence()) SplitAdapterTokens(group);
  }
}

Variable LinearLayer::RunSplit(Pass& pass, const Variable& x, const Variable* residual) {
  if (style_ == SplitStyle::kRow) {
    return SumRow(pass, Adapt(pass, x, Linear(pass.tape, x, weight(), nullptr)), residual);
  }
  CHECK(residual == nullptr) << name() << ": only some of the features are here";
  const Variable entered = group_->Enter(pass, x);
  const Variable y = Adapt(pass, entered, Linear(pass.tape, entered, weight(), bias_));
  if (style_ == SplitStyle::kColumn) return y;
  std::vector<int64_t> widths;
  for (int i = 0; i < group_->size(); ++i)
    widths.push_back(OutputSlice(group_->size(), i).extent());
  return group_->GatherColumns(pass, y, widths);
}

Attention QkvLayer::Attend(const Dropout& dropout) const {
  const bool split = style() == SplitStyle::kColumn;
  const Range own = split ? EvenRange(heads_, group()->size(), group()->index())
                          : Range{.first = 0, .count = heads_};
  return {.heads = own.count,
          .head_width = head_width_,
          .dropout = dropout,
          .total_heads = heads_,
          .first_head = own.first};
}

absl::Status QkvLayer::CheckSplit(SplitStyle style, int ranks) const {
  if (style != SplitStyle::kColumn) return absl::OkStatus();
  return CheckDivides(name(), heads_, "attention heads", ranks);
}

Variable LinearLayer::SumRow(Pass& pass, Variable part, const Variable* residual) {
  Variable y = group_->Leave(pass, std::move(part));
  if (bias_ == nullptr && residual == nullptr) return y;
  return AddBias(pass.tape, std::move(y), bias_, residual);
}

Variable LinearLayer::OfGelu(Pass& pass, const Variable& pre, const Variable* residual) {
  const auto run = [&](Leaf* bias, const Variable* addend) {
    Variable y = GeluLinear(pass.tape, pre, weight(), bias, addend);
    return adapters().empty() ? y : Adapt(pass, Gelu(pass.tape, pre), std::move(y));
  };
  if (style_ == SplitStyle::kReplicated) return run(bias_, residual);
  CHECK(style_ == SplitStyle::kRow) << name() << ": only some of the features are here";
  return SumRow(pass, run(nullptr, nullptr), residual);
}

std::vector<AdaptableLayer::Target> QkvLayer::Targets() const {
  std::vector<Target> targets = LinearLayer::Targets();
  const int64_t width = heads_ * head_width_;
  for (const char* kind : {".q", ".k", ".v"}) {
    const auto before = static_cast<int64_t>(targets.size()) - 1;
    targets.push_back({name() + kind, {.first = before * width, .count = width}});
  }
  return targets;
}

Slice QkvLayer::OutputSlice(int size, int index) const {
  const Range own = EvenRange(heads_, size, index);
  Slice slice = {.dimension = 0, .ranges = {}};
  for (int64_t kind = 0; kind < 3; ++kind) {
    slice.ranges.push_back(
        {.first = (kind * heads_ + own.first) * head_width_, .count = own.count * head_width_});
  }
  return slice;
}

Variable RunMlp(Pass& pass, const Variable& x, LinearLayer& up, LinearLayer& down,
                const Variable* residual) {
  if (!up.adapters().empty() || !down.adapters().empty()) {
    return down.OfGelu(pass, up(pass, x), residual);
  }
  CHECK(up.bias() != nullptr) << up.name() << ": the fused MLP has a bias there";
  if (up.style() == SplitStyle::kReplicated && down.style() == SplitStyle::kReplicated) {
    return ApplyGeluMlp(pass.tape, x, {up.weight(), *up.bias(), down.weight(), down.bias()},
                        residual);
  }
  CHECK(up.style() == SplitStyle::kColumn && down.style() == SplitStyle::kRow)
      << up.name() << ", " << down.name() << ": split by column, then by row, or not at all";
  const Variable entered = up.group()->Enter(pass, x);
  Variable y = down.group()->Leave(
      pass,
      ApplyGeluMlp(pass.tape, entered, {up.weight(), *up.bias(), down.weight(), nullptr}, nullptr));
  if (down.bias() == nullptr && residual == nullptr) return y;
  return AddBias(pass.tape, std::move(y), down.bias(), residual);
}

ConvolutionLayer::ConvolutionLayer(std::string name, int64_t in, int64_t out, const Window& window)
    : AdaptableLayer(std::move(name), {out, window.kernel, window.kernel, in},
                     Init::Normal(std::sqrt(2.0f) * RootOf(out * window.kernel * window.kernel)),
                     window),
      window_(window) {}

absl::Status ConvolutionLayer::CheckSplit(SplitStyle style, int ranks) const {
  if (style == SplitStyle::kColumn) {
    return CheckDivides(name(), weight().shape[0], "output channels", ranks);
  }
  if (style == SplitStyle::kRow) {
    return CheckDivides(name(), weight().shape[3], "input channels", ranks);
  }
  return absl::OkStatus();
}

void ConvolutionLayer::Split(SplitStyle style, SplitGroup& group) {
  if (style != SplitStyle::kColumn && style != SplitStyle::kRow) return;
  style_ = style;
  group_ = &group;
  const int64_t dimension = style == SplitStyle::kColumn ? 0 : 3;
  weight().slice = EvenSlice(dimension, weight().shape[static_cast<int>(dimension)], group.size(),
                             group.index());
  if (style == SplitStyle::kColumn) {
    SplitAdapterOutputs(*weight().slice);
  } else {
    SplitAdapterInputs(*weight().slice);
  }
}

Variable ConvolutionLayer::operator()(Pass& pass, const Variable& x) {
  const auto run = [&](const Variable& in) {
    return Adapt(pass, in, Convolution(pass.tape, in, weight(), nullptr, window_));
  };
  switch (style_) {
    case SplitStyle::kColumn:
      return run(group_->Enter(pass, x));
    case SplitStyle::kRow:
      return group_->Leave(pass, run(x));
    default:
      return run(x);
  }
}

BatchNormLayer::BatchNormLayer(std::string name, int64_t channels, Activation activation,
                               std::optional<float> momentum)
    : Module(std::move(name)),
      activation_(activation),
      weight_(AddParameter("weight", {channels}, Init::Constant(1))),
      bias_(AddParameter("bias", {channels}, Init::Constant(0))),
      statistics_(AddStatistics(channels, momentum)) {}

Variable BatchNormLayer::operator()(Pass& pass, const Variable& x, const Variable* residual) {
  Kernels& k = pass.kernels();
  if (!pass.training()) {
    Tensor y = k.EmptyLike(x.value);
    k.BatchNormInference(x.value, weight_.value, bias_.value, residual ? residual->value : Tensor(),
                         statistics_.mean, statistics_.variance, kEpsilon, activation_, y);
    return Variable(y);
  }
  const BatchNormOptions options = {.epsilon = kEpsilon, .activation = activation_};
  if (statistics_.frozen) {
    return BatchNormByEstimate(pass.tape, x, weight_, bias_, residual, options, statistics_.mean,
                               statistics_.variance);
  }
  const int64_t channels = statistics_.held_channels();
  Tensor mean = k.Empty({channels}), variance = k.Empty({channels});
  Variable y = BatchNorm(pass.tape, x, weight_, bias_, residual, options, mean, variance);
  if (!pass.is_recomputing()) statistics_.Gather(k, mean, variance, x.shape().rows());
  return y;
}

void BatchNormLayer::Split(SplitStyle style, SplitGroup& group) {
  if (style != SplitStyle::kColumn) return;
  statistics_.slice = EvenSlice(0, statistics_.channels, group.size(), group.index());
  weight_.slice = bias_.slice = statistics_.slice;
}

LayerNormLayer::LayerNormLayer(std::string name, int64_t width)
    : Module(std::move(name)),
      weight_(AddParameter("weight", {width}, Init::Constant(1))),
      bias_(AddParameter("bias", {width}, Init::Constant(0))) {}

EmbeddingLayer::EmbeddingLayer(std::string name, int64_t entries, int64_t width, Init init)
    : Module(std::move(name)), weight_(AddParameter("weight", {entries, width}, init)) {}

void EmbeddingLayer::Split(SplitStyle style, SplitGroup& group) {
  if (style != SplitStyle::kVocabulary) return;
  group_ = &group;
  SplitRows(weight_, group);
}

Variable EmbeddingLayer::operator()(Pass& pass, const Variable& ids) {
  if (group_ == nullptr) return Embedding(pass.tape, ids, weight_);
  Kernels& k = pass.kernels();
  const Tensor own = k.Empty(ids.shape(), DType::kI32);
  k.LocalIds(ids.value, weight_.slice->ranges[0], own);
  return group_->Leave(pass, Embedding(pass.tape, Variable(own), weight_));
}

PositionLayer::PositionLayer(std::string name, int64_t longest, int64_t width, Init init)
    : Module(std::move(name)), weight_(AddParameter("weight", {longest, width}, init)) {}

void PositionLayer::Split(SplitStyle /*style*/, SplitGroup& group) {
  if (group.splits_sequence()) sequence_ = &group;
}

Variable PositionLayer::operator()(Pass& pass, const Variable& x) {
  if (sequence_ == nullptr) return AddPositions(pass.tape, x, weight_);
  const Range own = sequence_->Tokens(pass.tokens.elements());
  std::vector<int32_t> positions(own.count);
  for (int64_t i = 0; i < own.count; ++i) {
    positions[i] = static_cast<int32_t>((own.first + i) % pass.tokens[-1]);
  }
  const Tensor ids = pass.kernels().Empty({own.count}, DType::kI32);
  pass.kernels().CopyFromHost(positions.data(), ids);
  return Add(pass.tape, x, Embedding(pass.tape, Variable(ids), weight_));
}

TiedLogitsLayer::TiedLogitsLayer(std::string name, Parameter& table)
    : Module(std::move(name)), weight_(AddParameter("weight", table.shape, table.init)) {
  weight_.tied_to = &table;
}

void TiedLogitsLayer::Split(SplitStyle style, SplitGroup& group) {
  if (style != SplitStyle::kVocabulary) return;
  group_ = &group;
  SplitRows(weight_, group);
}

Variable TiedLogitsLayer::operator()(Pass& pass, const Variable& x) {
  if (group_ == nullptr) return Linear(pass.tape, x, weight_, nullptr);
  pass.split_logits = {.group = group_, .classes = weight_.slice->ranges[0]};
  return Linear(pass.tape, group_->Enter(pass, x), weight_, nullptr);
}

Variable DropoutLayer::operator()(Pass& pass, const Variable& x) const {
  const Dropout dropout = DropoutAt(pass, place_, probability_);
  if (sequence_ == nullptr) return ApplyDropout(pass.tape, dropout, x);
  const int64_t first = sequence_->Tokens(pass.tokens.elements()).first;
  return ApplyDropout(pass.tape, dropout, x, first * x.shape()[-1]);
}

void DropoutLayer::Split(SplitStyle /*style*/, SplitGroup& group) {
  if (group.splits_sequence()) sequence_ = &group;
}

}  // namespace lockstep
