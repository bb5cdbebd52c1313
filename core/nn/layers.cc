#include "core/nn/layers.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/autograd/weight_gradients.h"  // RowsOf
#include "core/base/status.h"
#include "core/nn/loss_in_runs.h"
#include "core/nn/positions.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

float RootOf(int64_t fan) { return 1.0f / std::sqrt(static_cast<float>(fan)); }

Slice SliceOf(int64_t dimension, const Range& range) {
  return {.dimension = dimension, .ranges = {range}};
}

// Matrix products are quick where rows and columns begin at multiples of 64 elements.
constexpr int64_t kRowsTogether = 64;

int64_t RowsOfLeaf(int64_t rows, int leaves) {
  const int64_t of_leaf = (rows + leaves - 1) / leaves;
  if (rows < kRowsTogether * leaves) return of_leaf;
  return (of_leaf + kRowsTogether - 1) / kRowsTogether * kRowsTogether;
}

// The rows of a table, one for each word, that the leaves of a cut have: as many for each leaf, the
// last ones' filled up with padding.
struct VocabularyRows {
  VocabularyRows(const Parameter& table, const FeatureCut& cut)
      : of_leaf(RowsOfLeaf(table.shape[0], cut.all_leaves())) {
    const int64_t rows = table.shape[0];
    own.first = std::min(rows, of_leaf * cut.first_leaf());
    own.count = std::min(of_leaf * cut.leaves(), rows - own.first);
    padding = of_leaf * cut.leaves() - own.count;
  }

  int64_t of_leaf, padding;
  Range own;
};

// Pads the table, and makes it the slice of a member.
void SplitRows(Parameter& table, const FeatureCut& cut) {
  const VocabularyRows rows(table, cut);
  if (cut.group != nullptr) table.slice = SliceOf(0, rows.own);
  table.padding = rows.padding;
}

// Cuts what `style` is meant for into leaves.
void SetFeatures(FeatureCut& cut, bool is_meant, SplitStyle style, int features) {
  cut.features = features;
  cut.style = is_meant && features > 1 ? style : SplitStyle::kReplicated;
}

absl::Status CheckDivides(const std::string& layer, int64_t features, const char* what, int count,
                          const std::string& slices) {
  if (features % count == 0) return absl::OkStatus();
  return InvalidArgument("layer '", layer, "' has ", features, " ", what,
                         ", which do not divide among ", count, " ", slices);
}

bool IsColumn(SplitStyle style) {
  return style == SplitStyle::kColumn || style == SplitStyle::kColumnGathered;
}

int64_t OutputsOf(const std::vector<PackedLinearLayer::Projection>& projections) {
  int64_t outputs = 0;
  for (const auto& projection : projections) outputs += projection.units * projection.unit_width;
  return outputs;
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

absl::Status LinearLayer::CheckSplit(SplitStyle style, int count, const std::string& slices) const {
  if (style == SplitStyle::kColumn) {
    return CheckDivides(name(), weight().shape[0], "output features", count, slices);
  }
  if (style == SplitStyle::kRow) {
    return CheckDivides(name(), weight().shape[1], "input features", count, slices);
  }
  return absl::OkStatus();
}

Variable LinearLayer::ProbedOutput(Pass& pass, Variable y) const {
  if (pass.probe == nullptr) return y;
  if (cut_.style != SplitStyle::kColumn) return Probed(pass, name(), std::move(y));
  Slice slice = OutputSlice(cut_.first_leaf(), cut_.leaves());
  slice.dimension = 1;
  return Probed(pass, name(), std::move(y),
                HeldFeatures{.slice = std::move(slice), .all = weight().shape[0]});
}

Slice LinearLayer::OutputSlice(int first, int count) const {
  return SliceOf(0, cut_.FeaturesAt(weight().shape[0], first, count));
}

FeatureLeaves LinearLayer::OutputLeaves() const {
  FeatureLeaves leaves;
  const int first = cut_.first_leaf(), count = cut_.leaves();
  const Slice own = OutputSlice(first, count);
  for (int i = 0; count > 1 && i < count; ++i) {
    leaves.push_back(PlacesIn(own, OutputSlice(first + i, 1).ranges));
  }
  return leaves;
}

void LinearLayer::CutFeatures(SplitStyle style, int features) {
  SetFeatures(cut_, IsColumn(style) || style == SplitStyle::kRow, style, features);
  CutAdapters(cut_);
}

void LinearLayer::Split(SplitStyle style, SplitGroup& group) {
  cut_.style = style;
  cut_.group = &group;
  if (style == SplitStyle::kRow) {
    weight().slice = SliceOf(1, cut_.Own(weight().shape[1]));
    SplitAdapterInputs(*weight().slice, group);
  } else if (IsColumn(style)) {
    weight().slice = OutputSlice(cut_.first_leaf(), cut_.leaves());
    if (bias_ != nullptr) bias_->slice = weight().slice;
    SplitAdapterOutputs(*weight().slice, group);
  } else {
    cut_.style = SplitStyle::kReplicated;
    if (group.splits_sequence()) SplitAdapterTokens(group);
  }
  CutAdapters(cut_);
}

// The leaves of a sum have a name before the expression that needs them. Where memory runs out
// within a conditional one, GCC 12 destroys parts of it that it has not made yet.
Variable LinearLayer::RunCut(Pass& pass, const Variable& x, const Variable* residual) {
  if (cut_.style == SplitStyle::kRow) {
    const SummedLeaves leaves = {.inputs = InputLeaves()};
    if (adapters().empty() || leaves.inputs.empty()) {
      Variable product = Linear(pass.tape, x, weight(), nullptr, nullptr, leaves);
      return SumRow(pass, Adapt(pass, x, std::move(product)), residual);
    }
    return SumRow(pass, RunByInputs(pass, {}, x, leaves.inputs), residual);
  }
  CHECK(residual == nullptr) << name() << ": only some of the features are here";
  const SummedLeaves leaves = {.outputs = OutputLeaves()};
  const Variable entered = cut_.Enter(pass, x);
  const Variable y =
      adapters().empty() || leaves.outputs.empty()
          ? Adapt(pass, entered, Linear(pass.tape, entered, weight(), bias_, nullptr, leaves))
          : RunByOutputs(pass, {}, entered, bias_, leaves.outputs);
  if (cut_.style == SplitStyle::kColumn || cut_.group == nullptr) return y;
  std::vector<int64_t> widths;
  for (int i = 0; i < cut_.group->size(); ++i) {
    widths.push_back(OutputSlice(i * cut_.leaves(), cut_.leaves()).extent());
  }
  return cut_.group->GatherColumns(pass, y, widths);
}

PackedLinearLayer::PackedLinearLayer(std::string name, int64_t in,
                                     std::vector<Projection> projections, const Options& options)
    : LinearLayer(std::move(name), in, OutputsOf(projections), options),
      projections_(std::move(projections)) {}

std::vector<AdaptableLayer::Target> PackedLinearLayer::Targets() const {
  std::vector<Target> targets = LinearLayer::Targets();
  int64_t first = 0;
  for (const Projection& projection : projections_) {
    const int64_t outputs = projection.units * projection.unit_width;
    targets.push_back({name() + "." + projection.name, {.first = first, .count = outputs}});
    first += outputs;
  }
  return targets;
}

absl::Status PackedLinearLayer::CheckSplit(SplitStyle style, int count,
                                           const std::string& slices) const {
  if (style != SplitStyle::kColumn) return absl::OkStatus();
  for (const Projection& projection : projections_) {
    LS_RETURN_IF_ERROR(
        CheckDivides(name(), projection.units, projection.units_called, count, slices));
  }
  return absl::OkStatus();
}

Range PackedLinearLayer::OwnUnits(size_t i) const {
  const int64_t units = projections_[i].units;
  return cut().style == SplitStyle::kColumn ? cut().Own(units) : Range{.first = 0, .count = units};
}

Slice PackedLinearLayer::OutputSlice(int first, int count) const {
  Slice slice = {.dimension = 0, .ranges = {}};
  int64_t before = 0;
  for (const Projection& projection : projections_) {
    const int64_t width = projection.unit_width;
    const Range own = cut().FeaturesAt(projection.units, first, count);
    slice.ranges.push_back({.first = before + own.first * width, .count = own.count * width});
    before += projection.units * width;
  }
  return slice;
}

QkvLayer::QkvLayer(std::string name, int64_t width, int64_t heads, int64_t key_heads,
                   const Options& options)
    : PackedLinearLayer(std::move(name), width,
                        {{.name = "q",
                          .units = heads,
                          .unit_width = width / heads,
                          .units_called = "attention heads"},
                         {.name = "k",
                          .units = key_heads,
                          .unit_width = width / heads,
                          .units_called = "heads of keys and values"},
                         {.name = "v",
                          .units = key_heads,
                          .unit_width = width / heads,
                          .units_called = "heads of keys and values"}},
                        options),
      heads_(heads),
      head_width_(width / heads) {}

Attention QkvLayer::Attend(const Dropout& dropout) const {
  const Range own = OwnUnits(0);
  return {.heads = own.count,
          .head_width = head_width_,
          .dropout = dropout,
          .total_heads = heads_,
          .first_head = own.first,
          .key_heads = OwnUnits(1).count};
}

Variable QkvLayer::ProbedAttention(Pass& pass, const std::string& place, Variable y) const {
  if (pass.probe == nullptr) return y;
  const Range heads = OwnUnits(0);
  return Probed(
      pass, place, std::move(y),
      HeldFeatures{.slice = SliceOf(1, {heads.first * head_width_, heads.count * head_width_}),
                   .all = heads_ * head_width_});
}

Variable LinearLayer::SumRow(Pass& pass, Variable part, const Variable* residual) {
  Variable y = cut_.Leave(pass, std::move(part));
  if (bias_ == nullptr && residual == nullptr) return y;
  return AddBias(pass.tape, std::move(y), bias_, residual);
}

Variable LinearLayer::RunOfGelu(Pass& pass, const Variable& pre, const Variable* residual) {
  const auto run = [&](Leaf* bias, const Variable* addend) {
    Variable y = GeluLinear(pass.tape, pre, weight(), bias, addend);
    return adapters().empty() ? y : Adapt(pass, Gelu(pass.tape, pre), std::move(y));
  };
  if (!cut_.is_cut()) return run(bias_, residual);
  CHECK(cut_.style == SplitStyle::kRow) << name() << ": only some of the features are here";
  const FeatureLeaves leaves = InputLeaves();
  if (leaves.empty()) return SumRow(pass, run(nullptr, nullptr), residual);
  const WeightProduct of_gelu = {WeightProduct::Kind::kGeluLinear, {}};
  if (adapters().empty()) return SumRow(pass, RunByInputs(pass, of_gelu, pre, leaves), residual);
  const Variable gelu = Gelu(pass.tape, pre);
  return SumRow(pass, RunByInputs(pass, of_gelu, pre, leaves, &gelu), residual);
}

Variable LinearLayer::RunOfSwiGlu(Pass& pass, const Variable& pre, const Variable* residual) {
  CHECK(bias_ == nullptr) << name() << ": an MLP with SwiGLU has no bias";
  if (!cut_.is_cut()) return SwiGluLinear(pass.tape, pre, weight(), residual);
  CHECK(cut_.style == SplitStyle::kRow) << name() << ": only some of the features are here";
  return SumRow(pass, SwiGluLinear(pass.tape, pre, weight(), nullptr, InputLeaves()), residual);
}

Variable RunMlp(Pass& pass, const Variable& x, LinearLayer& up, LinearLayer& down,
                const Variable* residual) {
  if (!up.adapters().empty() || !down.adapters().empty()) {
    return down.OfGelu(pass, up(pass, x), residual);
  }
  CHECK(up.bias() != nullptr) << up.name() << ": the fused MLP has a bias there";
  if (!up.cut().is_cut() && !down.cut().is_cut()) {
    return down.ProbedOutput(
        pass, ApplyGeluMlp(pass.tape, x, {up.weight(), *up.bias(), down.weight(), down.bias()},
                           residual));
  }
  CHECK(up.cut().style == SplitStyle::kColumn && down.cut().style == SplitStyle::kRow)
      << up.name() << ", " << down.name() << ": split by column, then by row, or not at all";
  const GeluMlp mlp = {up.weight(), *up.bias(), down.weight(), nullptr, down.InputLeaves()};
  Variable y =
      down.cut().Leave(pass, ApplyGeluMlp(pass.tape, up.cut().Enter(pass, x), mlp, nullptr));
  if (down.bias() != nullptr || residual != nullptr) {
    y = AddBias(pass.tape, std::move(y), down.bias(), residual);
  }
  return down.ProbedOutput(pass, std::move(y));
}

Variable RunSwiGluMlp(Pass& pass, const Variable& x, GateUpLayer& gate_up, LinearLayer& down,
                      const Variable* residual) {
  return down.OfSwiGlu(pass, gate_up(pass, x), residual);
}

ConvolutionLayer::ConvolutionLayer(std::string name, int64_t in, int64_t out, const Window& window)
    : AdaptableLayer(std::move(name), {out, window.kernel, window.kernel, in},
                     Init::Normal(std::sqrt(2.0f) * RootOf(out * window.kernel * window.kernel)),
                     window),
      window_(window) {}

absl::Status ConvolutionLayer::CheckSplit(SplitStyle style, int count,
                                          const std::string& slices) const {
  if (style == SplitStyle::kColumn) {
    return CheckDivides(name(), weight().shape[0], "output channels", count, slices);
  }
  if (style == SplitStyle::kRow) {
    return CheckDivides(name(), weight().shape[3], "input channels", count, slices);
  }
  return absl::OkStatus();
}

void ConvolutionLayer::CutFeatures(SplitStyle style, int features) {
  SetFeatures(cut_, style == SplitStyle::kColumn || style == SplitStyle::kRow, style, features);
  CutAdapters(cut_);
}

void ConvolutionLayer::Split(SplitStyle style, SplitGroup& group) {
  if (style != SplitStyle::kColumn && style != SplitStyle::kRow) return;
  cut_.style = style;
  cut_.group = &group;
  const int dimension = style == SplitStyle::kColumn ? 0 : 3;
  weight().slice = SliceOf(dimension, cut_.Own(weight().shape[dimension]));
  if (style == SplitStyle::kColumn) {
    SplitAdapterOutputs(*weight().slice, group);
  } else {
    SplitAdapterInputs(*weight().slice, group);
  }
  CutAdapters(cut_);
}

Variable ConvolutionLayer::Run(Pass& pass, const Variable& x) {
  const auto run = [&](const Variable& in) {
    return Adapt(pass, in, Convolution(pass.tape, in, weight(), nullptr, window_));
  };
  if (!cut_.is_cut()) return run(x);
  const WeightProduct product = WeightProduct::Of(window_);
  if (cut_.style == SplitStyle::kColumn) {
    const FeatureLeaves leaves = cut_.Leaves(weight().shape[0]);
    const Variable entered = cut_.Enter(pass, x);
    return leaves.empty() ? run(entered) : RunByOutputs(pass, product, entered, nullptr, leaves);
  }
  const FeatureLeaves leaves = cut_.Leaves(weight().shape[3]);
  return cut_.Leave(pass, leaves.empty() ? run(x) : RunByInputs(pass, product, x, leaves));
}

BatchNormLayer::BatchNormLayer(std::string name, int64_t channels, Activation activation,
                               std::optional<float> momentum)
    : Module(std::move(name)),
      activation_(activation),
      weight_(AddParameter("weight", {channels}, Init::Constant(1))),
      bias_(AddParameter("bias", {channels}, Init::Constant(0))),
      statistics_(AddStatistics(channels, momentum)) {}

Variable BatchNormLayer::Run(Pass& pass, const Variable& x, const Variable* residual) {
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
  const FeatureCut cut = {.style = style, .features = features_, .group = &group};
  statistics_.slice = SliceOf(0, cut.Own(statistics_.channels));
  weight_.slice = bias_.slice = statistics_.slice;
}

LayerNormLayer::LayerNormLayer(std::string name, int64_t width)
    : Module(std::move(name)),
      weight_(AddParameter("weight", {width}, Init::Constant(1))),
      bias_(AddParameter("bias", {width}, Init::Constant(0))) {}

RmsNormLayer::RmsNormLayer(std::string name, int64_t width, float epsilon)
    : Module(std::move(name)),
      epsilon_(epsilon),
      weight_(AddParameter("weight", {width}, Init::Constant(1))) {}

EmbeddingLayer::EmbeddingLayer(std::string name, int64_t entries, int64_t width, Init init)
    : Module(std::move(name)), weight_(AddParameter("weight", {entries, width}, init)) {}

void EmbeddingLayer::CutFeatures(SplitStyle style, int features) {
  SetFeatures(cut_, style == SplitStyle::kVocabulary, style, features);
  if (style == SplitStyle::kVocabulary) SplitRows(weight_, cut_);
}

void EmbeddingLayer::Split(SplitStyle style, SplitGroup& group) {
  if (style != SplitStyle::kVocabulary) return;
  cut_.style = style;
  cut_.group = &group;
  SplitRows(weight_, cut_);
}

Variable EmbeddingLayer::Run(Pass& pass, const Variable& ids) {
  // One leaf has the row, and the others add -0: a tree over leaves would round nothing.
  if (cut_.group == nullptr) return Embedding(pass.tape, ids, weight_);
  Kernels& k = pass.kernels();
  const Tensor own = k.Empty(ids.shape(), DType::kI32);
  k.LocalIds(ids.value, weight_.slice->ranges[0], own);
  return cut_.Leave(pass, Embedding(pass.tape, Variable(own), weight_));
}

PositionLayer::PositionLayer(std::string name, int64_t longest, int64_t width, Init init)
    : Module(std::move(name)), weight_(AddParameter("weight", {longest, width}, init)) {}

void PositionLayer::Split(SplitStyle /*style*/, SplitGroup& group) {
  if (group.splits_sequence()) sequence_ = &group;
}

Variable PositionLayer::Run(Pass& pass, const Variable& x) {
  const TokenOrder& tokens = pass.tokens;
  const bool are_given = pass.positions.defined();
  if (tokens.leaves == 1 && !are_given) return AddPositions(pass.tape, x, weight_);
  const Range own = OwnRows(sequence_, tokens);
  const Variable ids(are_given ? RowsOf(pass.kernels(), pass.positions,
                                        Range{own.first - tokens.first_row(), own.count})
                               : PositionsOf(pass.kernels(), tokens, own));
  const Variable rows = Embedding(pass.tape, ids, weight_);
  return Add(pass.tape, x, Reshape(pass.tape, rows, x.shape()));
}

LogitsLayer::LogitsLayer(std::string name, int64_t vocabulary, int64_t width, Init init)
    : Module(std::move(name)), weight_(AddParameter("weight", {vocabulary, width}, init)) {}

LogitsLayer::LogitsLayer(std::string name, Parameter& table)
    : Module(std::move(name)), weight_(AddParameter("weight", table.shape, table.init)) {
  weight_.tied_to = &table;
}

void LogitsLayer::CutFeatures(SplitStyle style, int features) {
  SetFeatures(cut_, style == SplitStyle::kVocabulary, style, features);
  if (style == SplitStyle::kVocabulary) SplitRows(weight_, cut_);
}

void LogitsLayer::Split(SplitStyle style, SplitGroup& group) {
  if (style != SplitStyle::kVocabulary) return;
  cut_.style = style;
  cut_.group = &group;
  SplitRows(weight_, cut_);
}

// Without the padding, which is no part of the logits.
Variable LogitsLayer::operator()(Pass& pass, const Variable& x) {
  Variable y = Run(pass, x);
  // Losses made in runs are no logits.
  if (pass.probe == nullptr || pass.loss_in_runs != nullptr) return y;
  return Probed(pass, name(), std::move(y),
                HeldFeatures{.slice = SliceOf(1, weight_.slice ? weight_.slice->ranges[0]
                                                               : Range{0, weight_.shape[0]}),
                             .all = weight_.shape[0],
                             .padding = weight_.padding});
}

Variable LogitsLayer::Run(Pass& pass, const Variable& x) {
  if (!cut_.is_cut() && weight_.padding == 0) {
    if (pass.loss_in_runs != nullptr) return CrossEntropyInRuns(pass, x, weight_, {});
    return Linear(pass.tape, x, weight_, nullptr);
  }
  const VocabularyRows rows(weight_, cut_);
  pass.split_logits = {.group = cut_.group, .classes = rows.own, .leaf_classes = rows.of_leaf};
  FeatureLeaves leaves;  // without padding
  for (int64_t i = 0; i < cut_.leaves(); ++i) {
    const int64_t first = std::min(i * rows.of_leaf, rows.own.count);
    leaves.push_back({{first, std::min(rows.of_leaf, rows.own.count - first)}});
  }
  if (leaves.size() == 1 && leaves[0][0].count == rows.of_leaf) leaves.clear();
  const Variable entered = cut_.Enter(pass, x);
  if (pass.loss_in_runs != nullptr) return CrossEntropyInRuns(pass, entered, weight_, leaves);
  return Linear(pass.tape, entered, weight_, nullptr, nullptr, {.outputs = leaves});
}

Variable DropoutLayer::operator()(Pass& pass, const Variable& x) const {
  return Probed(pass, name(),
                ApplyDropout(pass.tape, DropoutAt(pass, place_, probability_), x,
                             OwnRows(sequence_, pass.tokens).first * x.shape()[-1]));
}

void DropoutLayer::Split(SplitStyle /*style*/, SplitGroup& group) {
  if (group.splits_sequence()) sequence_ = &group;
}

}  // namespace lockstep
