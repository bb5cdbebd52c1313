#include "core/run/testing/tested_local_model.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/operations.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

class Square : public Block {
 public:
  Square(const std::string& name, Parameter* owner)
      : Block(name),
        weight_(AddParameter("weight", {kSquareWidth, kSquareWidth}, Init::Normal(0.5f))) {
    weight_.tied_to = owner;
  }
  Parameter& weight() { return weight_; }

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    return {Linear(pass.tape, inputs[0], weight_, nullptr)};
  }

 private:
  Parameter& weight_;
};

}  // namespace

Model MakeTiedSquares() {
  Model model;
  Parameter* owner = nullptr;
  for (const char* name : {"a", "b", "c"}) {
    auto block = std::make_unique<Square>(name, owner);
    if (owner == nullptr) owner = &block->weight();
    block->cost = {kSquareWidth * kSquareWidth, kSquareWidth};
    model.blocks.push_back(std::move(block));
  }
  return model;
}

LocalModelUnderTest::LocalModelUnderTest(RankHandle& handle, const Settings& settings,
                                         const std::vector<BlockRange>& ranges)
    : mesh_(Mesh::Create(settings.mesh, handle.comm()).value()),
      rank_(kernels_, mesh_, timer_, trace_),
      local_model_(rank_, MakeTiedSquares(), {ranges[mesh_.pp().rank()]}, settings, 1) {
  local_model_.AllocateGradients();
  local_model_.Clear(1);
}

void ForStages(const std::vector<BlockRange>& ranges,
               const std::function<void(LocalModelUnderTest&, int)>& run) {
  Settings settings;
  settings.seed = 5;
  settings.batch.size = 2;
  settings.mesh.pp = static_cast<int>(ranges.size());
  const absl::Status status = RunRanks(settings.mesh.pp, {}, [&](RankHandle& handle) {
    LocalModelUnderTest rank(handle, settings, ranges);
    run(rank, handle.rank());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

std::vector<float> Look(const Tensor& tensor) {
  return {tensor.span<float>().begin(), tensor.span<float>().end()};
}

}  // namespace lockstep
