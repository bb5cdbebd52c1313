// Stages of a small model on ranks that are threads, against the same model as one stage.

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/autograd/operations.h"
#include "core/base/status.h"
#include "core/comm/launch.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/nn/layers.h"
#include "core/train/stage_pass.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "strategies/stages/stage_links.h"
#include "strategies/stages/stage_loss.h"
#include "strategies/stages/tied_parameters.h"

namespace lockstep {
namespace {

using ::testing::IsEmpty;

constexpr int64_t kWidth = 3;

// y = x w', where w is a parameter of its own or tied to another block's.
class Square : public Block {
 public:
  Square(const std::string& name, Parameter* owner)
      : Block(name), weight_(AddParameter("weight", {kWidth, kWidth}, Init::Normal(0.5f))) {
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

// Three blocks, of which the second and the third are tied to the first.
Model MakeModel() {
  Model model;
  Parameter* owner = nullptr;
  for (const char* name : {"a", "b", "c"}) {
    auto block = std::make_unique<Square>(name, owner);
    if (owner == nullptr) owner = &block->weight();
    block->cost = {kWidth * kWidth, kWidth};
    model.blocks.push_back(std::move(block));
  }
  return model;
}

// A rank of a mesh {pp = ranges.size()}, with its stage.
class StageUnderTest {
 public:
  StageUnderTest(RankHandle& handle, const Settings& settings,
                 const std::vector<BlockRange>& ranges)
      : mesh_(Mesh::Create(settings.mesh, handle.comm()).value()),
        rank_{handle.rank(), handle.size(), kernels_, mesh_, timer_, trace_},
        stage_(rank_, MakeModel(), ranges[mesh_.pp().rank()], settings, 1) {
    stage_.AllocateGradients();
    stage_.Clear(1);
  }

  Kernels& kernels() { return kernels_; }
  Mesh& mesh() { return mesh_; }
  Stage& stage() { return stage_; }
  Parameter& weight(int block) { return *stage_.model().blocks[block]->Parameters()[0]; }

  // The bits of a tensor.
  static std::vector<float> Look(const Tensor& tensor) {
    return {tensor.span<float>().begin(), tensor.span<float>().end()};
  }

 private:
  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
  Mesh mesh_;
  StepTimer timer_{{}};
  Trace trace_{0, Trace::Window{}};
  Rank rank_;
  Stage stage_;
};

void ForStages(const std::vector<BlockRange>& ranges,
               const std::function<void(StageUnderTest&, int)>& run) {
  Settings settings;
  settings.seed = 5;
  settings.batch.size = 2;
  settings.mesh.pp = static_cast<int>(ranges.size());
  const absl::Status status = RunRanks(settings.mesh.pp, {}, [&](RankHandle& handle) {
    StageUnderTest rank(handle, settings, ranges);
    run(rank, handle.rank());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

const std::vector<BlockRange> kOneStage = {{0, 3}};
const std::vector<BlockRange> kThreeStages = {{0, 1}, {1, 2}, {2, 3}};

TEST(StageTest, NamesAllTensorsOfTheModelAndHoldsItsOwn) {
  ForStages({{0, 1}, {1, 3}}, [](StageUnderTest& rank, int index) {
    const std::vector<StateTensor> state = rank.stage().State();
    ASSERT_EQ(state.size(), 1u);  // the tied ones are no tensors of their own
    EXPECT_EQ(state[0].name, "a.weight");
    EXPECT_EQ(state[0].full_shape, (Shape{kWidth, kWidth}));
    EXPECT_EQ(state[0].tensor.elements(), index == 0 ? kWidth * kWidth : 0);
    EXPECT_EQ(rank.stage().Trained()[0].gradient.elements(), index == 0 ? kWidth * kWidth : 0);
    EXPECT_EQ(rank.stage().is_first(), index == 0);
    EXPECT_EQ(rank.stage().is_last(), index == 1);
    // Owner and two gradients that come to it; two values, two gradients and no optimizer state.
    const int64_t matrix = kWidth * kWidth * 4;
    std::vector<int64_t> bytes;
    for (const auto& memory : rank.stage().Predict().memory) bytes.push_back(memory.bytes);
    EXPECT_EQ(bytes, index == 0 ? std::vector<int64_t>({matrix, 3 * matrix, 2 * matrix})
                                : std::vector<int64_t>({2 * matrix, 2 * matrix, 0}));
  });
}

TEST(StageTest, TiedValuesBeginWithTheBitsOfTheirOwner) {
  std::vector<float> owner;
  ForStages(kOneStage, [&](StageUnderTest& rank, int) { owner = rank.Look(rank.weight(0).value); });
  ForStages(kThreeStages, [&](StageUnderTest& rank, int index) {
    EXPECT_EQ(rank.Look(rank.weight(index).value), owner);
  });
}

// Losses and the owner's gradient of one micro-batch, by stages and in one.
TEST(StageExchangeTest, APassThroughStagesHasTheBitsOfOneStage) {
  struct Result {
    double loss = 0;
    std::vector<float> gradient = {};
  };
  const auto run = [](const std::vector<BlockRange>& ranges) {
    Result result;
    ForStages(ranges, [&](StageUnderTest& rank, int index) {
      Stage& stage = rank.stage();
      StageLinks links(stage, rank.mesh().pp());
      TiedParameters tied(stage, ranges, rank.mesh().pp());
      const BatchKind kind = {.samples = 2};
      const Tensor x = rank.kernels().Empty({2, kWidth});
      for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = 0.3f * static_cast<float>(i);
      const Tensor targets = rank.kernels().Empty({2}, DType::kI32);
      targets.data<int32_t>()[0] = 0;
      targets.data<int32_t>()[1] = 2;

      tied.BeginStep();
      StagePass pass(stage, 0, 0);
      const Variables outputs =
          pass.Forward(stage.is_first() ? stage.Enter(x) : links.ReceiveActivations(kind), targets);
      std::vector<Tensor> gradients;
      if (!stage.is_last()) {
        links.SendActivations(kind, outputs);
        gradients = links.ReceiveGradients(kind);
      }
      const std::vector<Tensor> of_inputs = pass.Backward(std::move(gradients));
      if (!stage.is_first()) links.SendGradients(kind, of_inputs);
      tied.SendGradients();
      for (Parameter* parameter : stage.parameters()) {
        tied.AwaitGradients(*parameter);
        stage.CompleteGradient(*parameter);
      }
      links.AwaitSent();
      const double loss = ShareLoss(stage, rank.mesh().dp(), rank.mesh().pp());
      tied.AwaitSent();
      EXPECT_GT(loss, 0) << "stage " << index;
      if (index == 0) result = {loss, rank.Look(rank.weight(0).gradient)};
    });
    return result;
  };
  const Result one = run(kOneStage);
  for (const auto& ranges : {kThreeStages, {{0, 2}, {2, 3}}, {{0, 1}, {1, 3}}}) {
    const Result stages = run(ranges);
    EXPECT_EQ(stages.loss, one.loss);
    EXPECT_EQ(stages.gradient, one.gradient);
  }
}

TEST(TiedParametersTest, GradientsAddUpInTheModelsOrderAndValuesComeBack) {
  ForStages(kThreeStages, [](StageUnderTest& rank, int index) {
    TiedParameters tied(rank.stage(), kThreeStages, rank.mesh().pp());
    Kernels& kernels = rank.kernels();
    // In floats (1 + 2^24) - 2^24 is 0 or 1, as it is added.
    const float parts[] = {1, 16777216, -16777216};
    kernels.Fill(rank.weight(index).gradient, parts[index]);
    rank.weight(index).MarkGradient();
    tied.BeginStep();
    tied.SendGradients();
    if (index == 0) {
      tied.AwaitGradients(rank.weight(0));
      rank.stage().CompleteGradient(rank.weight(0));
      EXPECT_EQ(rank.weight(0).gradient.data<float>()[0], (parts[0] + parts[1]) + parts[2]);
      kernels.Fill(rank.weight(0).value, 7);
    }
    tied.AwaitSent();
    tied.SendValues();
    EXPECT_EQ(rank.weight(index).value.data<float>()[kWidth * kWidth - 1], 7);
  });
}

TEST(TiedParametersTest, WithoutAGradientNothingChangesByABit) {
  ForStages({{0, 2}, {2, 3}}, [](StageUnderTest& rank, int index) {
    const std::vector<BlockRange> ranges = {{0, 2}, {2, 3}};
    TiedParameters tied(rank.stage(), ranges, rank.mesh().pp());
    tied.BeginStep();
    tied.SendGradients();  // block c was not used
    if (index == 0) {
      float* own = rank.weight(0).gradient.data<float>();
      const float values[] = {-0.0f, 0.0f, 1e-40f};
      for (int64_t i = 0; i < kWidth * kWidth; ++i) own[i] = values[i % 3];
      const std::vector<float> before = rank.Look(rank.weight(0).gradient);
      rank.weight(0).MarkGradient();
      tied.AwaitGradients(rank.weight(0));
      rank.stage().CompleteGradient(rank.weight(0));
      for (int64_t i = 0; i < kWidth * kWidth; ++i) {
        EXPECT_EQ(own[i], before[i]);
        EXPECT_EQ(std::signbit(own[i]), std::signbit(before[i])) << i;
      }
    }
    tied.AwaitSent();
  });
}

TEST(TiedParametersTest, WithinAStageNothingTravels) {
  ForStages(kOneStage, [](StageUnderTest& rank, int) {
    TiedParameters tied(rank.stage(), kOneStage, rank.mesh().pp());
    CostPrediction prediction;
    tied.AddTraffic(prediction);
    EXPECT_THAT(prediction.traffic, IsEmpty());
    tied.BeginStep();
    tied.SendGradients();
    tied.AwaitGradients(rank.weight(0));
    tied.AwaitSent();
    tied.SendValues();
  });
}

}  // namespace
}  // namespace lockstep
