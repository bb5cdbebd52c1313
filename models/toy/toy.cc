#include "models/toy/toy.h"

#include <memory>
#include <string>
#include <utility>

#include "core/nn/layers.h"

namespace lockstep {
namespace {

class LinearBlock : public Block {
 public:
  LinearBlock(std::string name, int64_t in, int64_t out)
      : Block(std::move(name)), linear_(AddChild<LinearLayer>("linear", in, out)) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    const Variable& x = inputs[0];
    const int64_t batch = x.shape()[0];
    const Shape flat = {batch, x.value.elements() / batch};
    return {linear_(pass, x.shape() == flat ? x : Reshape(pass.tape, x, flat))};
  }

 private:
  LinearLayer& linear_;
};

class ReluBlock : public Block {
 public:
  using Block::Block;

 protected:
  Variables Forward(Pass& pass, Variables inputs) override { return {Relu(pass.tape, inputs[0])}; }
};

}  // namespace

Model MakeToy(const ToyOptions& options) {
  Model model;
  model.blocks.push_back(std::make_unique<LinearBlock>("net1", options.inputs, options.hidden));
  model.blocks.push_back(std::make_unique<ReluBlock>("relu"));
  model.blocks.push_back(std::make_unique<LinearBlock>("net2", options.hidden, options.outputs));
  model.split_plan = {{"net1.linear", SplitStyle::kColumn}, {"net2.linear", SplitStyle::kRow}};
  model.blocks[0]->cost = {options.inputs * options.hidden, options.hidden};
  model.blocks[1]->cost = {0, options.hidden};
  model.blocks[2]->cost = {options.hidden * options.outputs, options.outputs};
  // The inputs want no gradient.
  model.split_traffic = {{.layer = "net2.linear", .forward = options.outputs}};
  return model;
}

}  // namespace lockstep
