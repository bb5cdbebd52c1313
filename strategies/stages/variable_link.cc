#include "strategies/stages/variable_link.h"

#include <deque>
#include <optional>
#include <utility>

#include "glog/logging.h"

namespace lockstep {
namespace {

std::shared_ptr<GradientSlot> SlotIf(bool needs_gradient) {
  return needs_gradient ? std::make_shared<GradientSlot>() : nullptr;
}

class RankLink : public VariableLink {
 public:
  RankLink(Communicator& ranks, int from, int to, const LinkLabels& labels, Kernels& kernels) {
    CHECK_NE(from, to);
    if (ranks.rank() == from) {
      variables_out_.emplace(ranks, to, labels.variables, kernels);
      gradients_in_.emplace(ranks, to, labels.gradients, kernels);
    } else {
      CHECK_EQ(ranks.rank(), to);
      variables_in_.emplace(ranks, from, labels.variables, kernels);
      gradients_out_.emplace(ranks, from, labels.gradients, kernels);
    }
  }

  void Send(const BatchKind& kind, const Variables& variables) override {
    std::vector<RoutedTensor> tensors;
    for (const Variable& variable : variables) {
      tensors.push_back({.tensor = variable.value, .needs_gradient = variable.needs_gradient()});
    }
    variables_out_->Send(kind, std::move(tensors));
  }

  void ExpectGradients(const BatchKind& kind) override { gradients_in_->Expect(kind); }

  std::vector<Tensor> TakeGradients(const BatchKind& kind) override {
    std::vector<Tensor> gradients;
    for (RoutedTensor& routed : gradients_in_->Receive(kind)) {
      gradients.push_back(std::move(routed.tensor));
    }
    return gradients;
  }

  void Expect(const BatchKind& kind) override { variables_in_->Expect(kind); }

  Variables Take(const BatchKind& kind) override {
    Variables variables;
    for (RoutedTensor& routed : variables_in_->Receive(kind)) {
      variables.emplace_back(std::move(routed.tensor), SlotIf(routed.needs_gradient));
    }
    return variables;
  }

  void SendGradients(const BatchKind& kind, const std::vector<Tensor>& gradients) override {
    std::vector<RoutedTensor> tensors;
    for (const Tensor& gradient : gradients) tensors.push_back({.tensor = gradient});
    gradients_out_->Send(kind, std::move(tensors));
  }

  void ReleaseSent() override {
    if (variables_out_) variables_out_->ReleaseSent();
    if (gradients_out_) gradients_out_->ReleaseSent();
  }

  void AwaitSent() override {
    if (variables_out_) variables_out_->AwaitSent();
    if (gradients_out_) gradients_out_->AwaitSent();
  }

 private:
  std::optional<RouteStart> variables_out_, gradients_out_;
  std::optional<RouteEnd> variables_in_, gradients_in_;
};

class LocalLink : public VariableLink {
 public:
  void Send(const BatchKind&, const Variables& variables) override {
    Variables& list = variables_.emplace_back();
    for (const Variable& variable : variables) {
      list.emplace_back(variable.value, SlotIf(variable.needs_gradient()));
    }
  }
  void ExpectGradients(const BatchKind&) override {}
  std::vector<Tensor> TakeGradients(const BatchKind&) override { return TakeFirst(gradients_); }

  void Expect(const BatchKind&) override {}
  Variables Take(const BatchKind&) override { return TakeFirst(variables_); }
  void SendGradients(const BatchKind&, const std::vector<Tensor>& gradients) override {
    gradients_.push_back(gradients);
  }

  void ReleaseSent() override {}
  void AwaitSent() override {}

 private:
  template <typename List>
  static List TakeFirst(std::deque<List>& lists) {
    CHECK(!lists.empty()) << "a stage runs before the one whose results it needs";
    List first = std::move(lists.front());
    lists.pop_front();
    return first;
  }

  std::deque<Variables> variables_;
  std::deque<std::vector<Tensor>> gradients_;
};

}  // namespace

std::unique_ptr<VariableLink> LinkRanks(Communicator& ranks, int from, int to,
                                        const LinkLabels& labels, Kernels& kernels) {
  return std::make_unique<RankLink>(ranks, from, to, labels, kernels);
}

std::unique_ptr<VariableLink> LinkWithinRank() { return std::make_unique<LocalLink>(); }

}  // namespace lockstep
