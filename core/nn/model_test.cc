#include "core/nn/model.h"

#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

class MatrixBlock : public Block {
 public:
  explicit MatrixBlock(std::string name)
      : Block(std::move(name)), weight(AddParameter("weight", {3, 4}, Init::Normal(1))) {
    AddParameter("bias", {3}, Init::Constant(0));
    AddStatistics(2, 0.1f);
  }

  Parameter& weight;

 protected:
  Variables Forward(Pass&, Variables inputs) override { return inputs; }
};

TEST(ModelTest, ListsWhatItsBlocksHoldInOrder) {
  Model model;
  model.blocks.push_back(std::make_unique<MatrixBlock>("b"));
  model.blocks.push_back(std::make_unique<MatrixBlock>("a"));
  std::vector<std::string> parameters, statistics;
  for (const Parameter* p : model.Parameters()) parameters.push_back(p->name);
  for (const RunningStatistics* s : model.Statistics()) statistics.push_back(s->name);
  EXPECT_THAT(parameters, ElementsAre("b.weight", "b.bias", "a.weight", "a.bias"));
  EXPECT_THAT(statistics, ElementsAre("b", "a"));
}

TEST(ModelTest, CountsTiedParametersOnce) {
  Model model;
  auto first = std::make_unique<MatrixBlock>("first"), last = std::make_unique<MatrixBlock>("last");
  last->weight.tied_to = &first->weight;
  model.blocks.push_back(std::move(first));
  model.blocks.push_back(std::move(last));
  EXPECT_EQ(model.ParameterCount(), 12 + 3 + 3);
  EXPECT_EQ(model.TrainedCount(), 12 + 3 + 3);
  model.blocks[0]->Parameters()[0]->trainable = false;
  EXPECT_EQ(model.TrainedCount(), 3 + 3);
}

}  // namespace
}  // namespace lockstep
