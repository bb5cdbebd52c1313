#include "strategies/stages/testing/model_of_costs.h"

#include <memory>

#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

class Empty : public Block {
 public:
  using Block::Block;

 protected:
  Variables Forward(Pass&, Variables inputs) override { return inputs; }
};

}  // namespace

Model ModelOfCosts(const std::vector<int64_t>& macs) {
  Model model;
  for (const int64_t cost : macs) {
    model.blocks.push_back(std::make_unique<Empty>(absl::StrCat("b", model.blocks.size())));
    model.blocks.back()->cost.forward_macs = cost;
  }
  return model;
}

}  // namespace lockstep
