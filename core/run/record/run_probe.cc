#include "core/run/record/run_probe.h"

#include <algorithm>
#include <cstring>  // std::memcpy
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/nn/split.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// What is here of a tensor of a pass, as a part of [rows, features]: of ids and losses [rows].
TensorSlice HeldOf(const ProbedTensor& probed, const Tensor& value, int64_t features) {
  const int64_t rows = value.elements() / std::max<int64_t>(1, features);
  const int64_t padding = probed.features ? probed.features->padding : 0;
  const int64_t held_features = features - padding;
  const int64_t all_features = probed.features ? probed.features->all : features;
  // A tensor of other rows, such as an image's, is not divided.
  Range own = {.first = 0, .count = rows};
  int64_t all_rows = rows;
  if (rows == probed.own_rows.count || rows == probed.tokens.held_rows()) {
    own = rows == probed.own_rows.count ? probed.own_rows
                                        : Range{.first = probed.tokens.first_row(), .count = rows};
    all_rows = probed.tokens.rows();
  }
  TensorSlice held = {.whole = {all_rows, all_features},
                      .first = own.first * held_features,
                      .elements = own.count * held_features};
  if (held_features != all_features) held.slice = probed.features->slice;
  return held;
}

}  // namespace

absl::Status CheckProbedPlaces(const ProbeSettings& settings, const Model& model) {
  if (settings.steps == 0) return absl::OkStatus();
  for (const std::string& pattern : settings.places) {
    const auto names = [&pattern](const auto& block) {
      const std::vector<Module*> modules = block->Modules();
      const std::vector<Parameter*> parameters = block->Parameters();
      return std::any_of(modules.begin(), modules.end(),
                         [&](const Module* each) { return MatchesLayer(pattern, each->name()); }) ||
             std::any_of(parameters.begin(), parameters.end(),
                         [&](const Parameter* each) { return MatchesLayer(pattern, each->name); });
    };
    if (std::any_of(model.blocks.begin(), model.blocks.end(), names)) continue;
    return InvalidArgument("probe.places: '", pattern,
                           "' names no block, layer or parameter of the ",
                           "model, whose blocks are ", model.blocks.front()->name(), " to ",
                           model.blocks.back()->name());
  }
  return absl::OkStatus();
}

RunProbe::RunProbe(ProbeSettings settings, ProbeHeader header, Mesh& mesh, Kernels& kernels,
                   std::string folder)
    : settings_(std::move(settings)),
      header_(std::move(header)),
      mesh_(mesh),
      kernels_(kernels),
      folder_(std::move(folder)) {}

void RunProbe::BeginStep(int64_t step, const std::vector<StateTensor>& state) {
  CHECK(!is_on());
  if (step < settings_.first_step || step >= settings_.first_step + settings_.steps) return;
  const bool is_first = held_.empty();
  header_.step = step;
  absl::StatusOr<ProbeWriter> writer = ProbeWriter::Open(folder_, header_, settings_.values);
  ThrowIfError(writer.status());
  writer_ = std::make_unique<ProbeWriter>(*std::move(writer));
  shards_.clear();
  ended_shards_.clear();
  for (const StateTensor& tensor : state) held_[tensor.name] = tensor.held();
  if (is_first) State(ProbeKind::kStateBefore, state);
}

void RunProbe::Observe(const ProbedTensor& probed, const Tensor& value) {
  const int64_t shard = probed.micro_batch / header_.micro_batches;
  if (std::find(shards_.begin(), shards_.end(), shard) == shards_.end()) shards_.push_back(shard);
  if (!IsProbed(probed.place)) return;
  const bool has_features = IsFloating(value.dtype()) && value.shape().rank() > 1;
  const int64_t features = has_features ? value.shape()[-1] : 1;
  const bool is_forward = probed.direction == ProbedTensor::Direction::kForward;
  Add({.kind = is_forward ? ProbeKind::kForward : ProbeKind::kBackward,
       .place = probed.place,
       .number = probed.micro_batch,
       .held = HeldOf(probed, value, features)},
      value);
}

void RunProbe::ShardGradient(const Parameter& use) {
  const size_t ended = ended_shards_[&use]++;
  CHECK_LT(ended, shards_.size()) << use.name << ": a shard has ended that no pass was of";
  if (!IsProbed(use.name)) return;
  // Ranks along ep send each other the tokens of their shards: there is no gradient of one shard.
  if (use.is_of_experts && mesh_.shape().ep > 1) return;
  const bool is_part = mesh_.cp().size() > 1 && use.context_over == nullptr;
  const std::vector<int64_t> whole = Dims(use.shape);
  Add({.kind = ProbeKind::kShardGradient,
       .place = use.name,
       .number = shards_[ended],
       .part = is_part ? absl::StrCat("cp ", mesh_.coordinate().cp, " of ", mesh_.cp().size()) : "",
       .held = use.slice ? SliceOf(whole, *use.slice) : WholeSlice(whole)},
      use.gradient);
}

void RunProbe::Gradients(const std::vector<TrainedTensor>& trained) {
  for (const TrainedTensor& tensor : trained) {
    if (!IsProbed(tensor.name)) continue;
    Add({.kind = ProbeKind::kGradient, .place = tensor.name, .held = held_.at(tensor.name)},
        tensor.gradient);
  }
}

void RunProbe::Number(const std::string& name, double value) {
  ProbeRecord record = {
      .kind = ProbeKind::kNumber, .place = name, .dtype = DType::kF64, .held = WholeSlice({1})};
  uint8_t bytes[sizeof(value)];
  std::memcpy(bytes, &value, sizeof(value));
  ThrowIfError(writer_->Add(std::move(record), bytes));
}

absl::Status RunProbe::EndStep(const std::vector<StateTensor>& state) {
  State(ProbeKind::kStateAfter, state);
  const std::unique_ptr<ProbeWriter> writer = std::move(writer_);
  return writer->Commit();
}

bool RunProbe::IsProbed(const std::string& place) const {
  if (place == kProbedInputs || place == kProbedTargets || place == kProbedLosses) return true;
  return std::any_of(settings_.places.begin(), settings_.places.end(),
                     [&place](const std::string& pattern) { return MatchesLayer(pattern, place); });
}

void RunProbe::State(ProbeKind kind, const std::vector<StateTensor>& state) {
  for (const StateTensor& tensor : state) {
    // "optimizer.<kind>.<parameter>" belongs to the parameter.
    std::string parameter = tensor.name;
    if (IsOptimizerState(tensor.name)) {
      const size_t begin = tensor.name.find('.', sizeof(kOptimizerPrefix) - 1);
      parameter = begin == std::string::npos ? tensor.name : tensor.name.substr(begin + 1);
    }
    if (!IsProbed(parameter)) continue;
    Add({.kind = kind, .place = tensor.name, .held = tensor.held()}, tensor.tensor);
  }
}

// Leaves out what lies behind the elements of the slice, and the padding of rows.
void RunProbe::Add(ProbeRecord record, const Tensor& tensor) {
  if (record.held.elements == 0) return;
  record.dtype = tensor.dtype();
  const bool is_of_pass = record.kind == ProbeKind::kForward || record.kind == ProbeKind::kBackward;
  const int64_t width = is_of_pass ? tensor.shape()[-1] * SizeOf(tensor.dtype()) : 0;
  const int64_t bytes = record.held.elements * SizeOf(tensor.dtype());
  const bool has_padding = is_of_pass && bytes < tensor.bytes();
  if (tensor.device().type == DeviceType::kCpu && !has_padding) {
    ThrowIfError(writer_->Add(std::move(record), reinterpret_cast<const uint8_t*>(tensor.raw())));
    return;
  }
  bytes_.resize(static_cast<size_t>(tensor.bytes()));
  kernels_.CopyToHost(tensor, bytes_.data());
  if (has_padding) {
    const int64_t rows = tensor.bytes() / width, kept = bytes / rows;
    for (int64_t row = 0; row < rows; ++row) {
      std::memmove(bytes_.data() + row * kept, bytes_.data() + row * width,
                   static_cast<size_t>(kept));
    }
  }
  ThrowIfError(writer_->Add(std::move(record), bytes_.data()));
}

}  // namespace lockstep
