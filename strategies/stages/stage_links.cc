#include "strategies/stages/stage_links.h"

#include <memory>

namespace lockstep {
namespace {

constexpr char kActivations[] = "activations";
constexpr char kGradients[] = "activation gradients";

}  // namespace

StageLinks::StageLinks(Stage& stage, Communicator& stages) : rank_(stage.rank()) {
  const int before = stages.rank() - 1, after = stages.rank() + 1;
  if (!stage.is_first()) {
    activations_in_.emplace(stages, before, kActivations, rank_.kernels);
    gradients_out_.emplace(stages, before, kGradients, rank_.kernels);
  }
  if (!stage.is_last()) {
    activations_out_.emplace(stages, after, kActivations, rank_.kernels);
    gradients_in_.emplace(stages, after, kGradients, rank_.kernels);
  }
}

Variables StageLinks::ReceiveActivations(const BatchKind& kind) {
  StepTimer::Scope scope(rank_.timer, Phase::kBubble);
  Variables inputs;
  for (RoutedTensor& routed : activations_in_->Receive(kind)) {
    inputs.emplace_back(std::move(routed.tensor),
                        routed.needs_gradient ? std::make_shared<GradientSlot>() : nullptr);
  }
  return inputs;
}

void StageLinks::SendActivations(const BatchKind& kind, const Variables& outputs) {
  std::vector<RoutedTensor> tensors;
  for (const Variable& output : outputs) {
    tensors.push_back({.tensor = output.value, .needs_gradient = output.needs_gradient()});
  }
  activations_out_->Send(kind, std::move(tensors));
}

std::vector<Tensor> StageLinks::ReceiveGradients(const BatchKind& kind) {
  StepTimer::Scope scope(rank_.timer, Phase::kBubble);
  std::vector<Tensor> gradients;
  for (RoutedTensor& routed : gradients_in_->Receive(kind)) {
    gradients.push_back(std::move(routed.tensor));
  }
  return gradients;
}

void StageLinks::SendGradients(const BatchKind& kind, const std::vector<Tensor>& of_inputs) {
  std::vector<RoutedTensor> tensors;
  for (const Tensor& gradient : of_inputs) tensors.push_back({.tensor = gradient});
  gradients_out_->Send(kind, std::move(tensors));
}

void StageLinks::AwaitSent() {
  StepTimer::Scope scope(rank_.timer, Phase::kBubble);
  if (activations_out_) activations_out_->AwaitSent();
  if (gradients_out_) gradients_out_->AwaitSent();
}

void AddLinkTraffic(const Stage& stage, const Settings& settings, double token_share,
                    CostPrediction& prediction) {
  // Of a step, what this block hands on; its gradient has the same size.
  const auto bytes = [&](int64_t block) {
    const BatchSettings& batch = settings.batch;
    return token_share * static_cast<double>(stage.model().blocks[block]->cost.output_elements *
                                             batch.micro_batches * batch.micro_batch_size() *
                                             SizeOf(settings.precision.compute));
  };
  const BlockRange& blocks = stage.blocks();
  const double routes = (stage.is_last() ? 0 : 1) + (stage.is_first() ? 0 : 1);
  if (routes > 0) {
    prediction.AddTraffic(Operation::kSend, kAnnouncementLabel, routes * kAnnouncementBytes,
                          CostPrediction::Often::kOnce);
  }
  if (!stage.is_last()) {
    prediction.AddTraffic(Operation::kSend, kActivations, bytes(blocks.end - 1));
  }
  if (!stage.is_first()) {
    prediction.AddTraffic(Operation::kSend, kGradients, bytes(blocks.begin - 1));
  }
}

}  // namespace lockstep
