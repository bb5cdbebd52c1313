#include "strategies/stages/testing/probe.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/autograd/operations.h"
#include "core/nn/layers.h"

namespace lockstep {
namespace {

class Probe : public Block {
 public:
  Probe(const std::string& name, ProbeActions actions)
      : Block(name),
        actions_(std::move(actions)),
        linear_(AddChild<LinearLayer>("linear", kProbeWidth, kProbeWidth)) {
    cost = {.forward_macs = kProbeWidth * kProbeWidth, .output_elements = kProbeWidth};
  }

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    if (actions_.forward) actions_.forward(pass);
    const Tensor kept = pass.kernels().Empty({actions_.kept_bytes / 4});
    const Variable y = linear_(pass, inputs[0]);
    pass.tape.RecordAlways([kept, this, micro_batch = pass.micro_batch] {
      if (actions_.backward) actions_.backward(micro_batch);
    });
    return {y};
  }

 private:
  const ProbeActions actions_;
  LinearLayer& linear_;
};

}  // namespace

Model MakeProbes(const std::vector<ProbeActions>& probes) {
  Model model;
  for (const ProbeActions& actions : probes) {
    const std::string name = absl::StrCat("b", model.blocks.size());
    model.blocks.push_back(std::make_unique<Probe>(name, actions));
  }
  return model;
}

void Events::Add(std::string event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
}

std::vector<std::string> Events::all() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

int64_t Events::Count(const std::string& event) const {
  const std::lock_guard lock(mutex_);
  return std::count(events_.begin(), events_.end(), event);
}

ProbeActions Recorded(const std::string& block, Events& events) {
  return {.forward =
              [block, &events](Pass& pass) {
                events.Add(
                    absl::StrCat("F", block, pass.is_recomputing() ? "' " : " ", pass.micro_batch));
              },
          .backward =
              [block, &events](int64_t micro_batch) {
                events.Add(absl::StrCat("B", block, " ", micro_batch));
              }};
}

}  // namespace lockstep
