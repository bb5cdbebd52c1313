#include "core/nn/model.h"

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace lockstep {

std::vector<Parameter*> Model::Parameters() const {
  std::vector<Parameter*> all;
  for (const auto& block : blocks) {
    for (Parameter* parameter : block->Parameters()) all.push_back(parameter);
  }
  return all;
}

std::vector<RunningStatistics*> Model::Statistics() const {
  std::vector<RunningStatistics*> all;
  for (const auto& block : blocks) {
    for (RunningStatistics* statistics : block->Statistics()) all.push_back(statistics);
  }
  return all;
}

absl::Status Model::CheckSplit(int count, const std::string& slices) const {
  std::string problems;
  for (const auto& block : blocks) {
    for (const Module* module : block->Modules()) {
      const absl::Status status =
          module->CheckSplit(StyleOf(split_plan, module->name()), count, slices);
      if (!status.ok()) absl::StrAppend(&problems, problems.empty() ? "" : "\n", status.message());
    }
  }
  return problems.empty() ? absl::OkStatus() : absl::InvalidArgumentError(problems);
}

void Model::CutFeatures(int features) {
  for (const auto& block : blocks) {
    for (Module* module : block->Modules()) {
      module->CutFeatures(StyleOf(split_plan, module->name()), features);
    }
  }
}

void Model::Split(SplitGroup& group) {
  CHECK(splits_sequence || !group.splits_sequence());
  for (const auto& block : blocks) {
    for (Module* module : block->Modules()) {
      module->Split(StyleOf(split_plan, module->name()), group);
    }
  }
  if (!group.splits_sequence()) return;
  sequence = &group;
  // Whole parameters of layers that are not split meet the own tokens alone.
  for (Parameter* parameter : Parameters()) {
    if (!parameter->slice && parameter->features_over == nullptr) parameter->tokens_over = &group;
  }
}

void Model::DivideExperts(ExpertGroup& group) {
  for (const auto& block : blocks) {
    for (Module* module : block->Modules()) module->DivideExperts(group);
  }
}

int64_t Model::ParameterCount() const {
  int64_t count = 0;
  for (const Parameter* parameter : Parameters()) {
    if (parameter->tied_to == nullptr) count += parameter->shape.elements();
  }
  return count;
}

int64_t Model::TrainedCount() const {
  int64_t count = 0;
  for (const Parameter* parameter : Parameters()) {
    if (parameter->trainable && parameter->tied_to == nullptr) count += parameter->shape.elements();
  }
  return count;
}

int64_t Model::ForwardMacsPerSample() const {
  int64_t macs = 0;
  for (const auto& block : blocks) macs += block->cost.forward_macs;
  return macs;
}

}  // namespace lockstep
