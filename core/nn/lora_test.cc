#include "core/nn/lora.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/testing/arrays.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/nn/layers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using reference::Array;
using ::testing::ElementsAre;

constexpr double kTolerance = 1e-5;  // relative to the largest element

// One layer of each kind that can be adapted, and what lies around them.
class TestBlock : public Block {
 public:
  explicit TestBlock(std::string name)
      : Block(std::move(name)),
        linear(AddChild<LinearLayer>("linear", 5, 3)),
        qkv(AddChild<QkvLayer>("qkv", 8, 2, LinearLayer::Options{})),
        up(AddChild<LinearLayer>("up", 32, 1000)),
        down(AddChild<LinearLayer>("down", 1000, 32)),
        convolution(AddChild<ConvolutionLayer>("conv", 3, 4,
                                               Window{.kernel = 3, .stride = 2, .padding = 1})),
        norm(AddChild<BatchNormLayer>("norm", 4, Activation::kRelu)) {}

  Variables Forward(Pass&, Variables inputs) override { return inputs; }

  LinearLayer& linear;
  QkvLayer& qkv;
  LinearLayer& up;
  LinearLayer& down;
  ConvolutionLayer& convolution;
  BatchNormLayer& norm;
};

std::vector<std::string> Names(const std::vector<Parameter*>& parameters) {
  std::vector<std::string> names;
  for (const Parameter* parameter : parameters) names.push_back(parameter->name);
  return names;
}

class LoraTest : public testing::Test {
 protected:
  LoraTest() {
    auto block = std::make_unique<TestBlock>("b");
    block_ = block.get();
    model_.blocks.push_back(std::move(block));
  }

  static LoraOptions Of(const std::vector<std::string>& layers) {
    return {.layers = layers, .rank = 2, .alpha = 3};
  }
  void Adapt(const LoraOptions& options) {
    ASSERT_TRUE(AddAdapters(model_, options).ok());
    Materialize(model_.Parameters(), 1, kernels_);
    Materialize(model_.Statistics(), kernels_);
  }
  // Values that B has after some training.
  void RandomizeB() {
    uint64_t stream = 100;
    for (Parameter* parameter : Trained()) {
      if (!parameter->name.ends_with("lora_B")) continue;
      kernels_.Copy(Upload(kernels_, RandomArray(parameter->shape, ++stream)), parameter->value);
    }
  }
  std::vector<Parameter*> Trained() const {
    std::vector<Parameter*> trained;
    for (Parameter* parameter : model_.Parameters()) {
      if (parameter->trainable) trained.push_back(parameter);
    }
    return trained;
  }
  Array Values(const Tensor& tensor) { return Download(kernels_, tensor); }

  // What a layer makes of x, and what a gradient of its output leaves in x.
  struct Passed {
    Array y, dx;
  };
  template <typename Layer>
  Passed Run(Layer& layer, const Array& x, uint64_t gradient = 9) {
    Tape tape(kernels_);
    Pass pass{.tape = tape};
    const Variable in = tape.Result(Upload(kernels_, x), true);
    const Variable out = layer(pass, in);
    Passed passed = {.y = Values(out.value), .dx = {}};
    tape.Backward({{out, Upload(kernels_, RandomArray(out.shape(), gradient))}});
    passed.dx = Values(in.gradient->Take());
    return passed;
  }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
  Model model_;
  TestBlock* block_;
};

TEST_F(LoraTest, AdaptersAreAllThatIsTrained) {
  Adapt({.layers = {"*.linear", "b.conv", "*.qkv.q", "*.qkv.v"}, .rank = 2, .alpha = 3});
  const std::vector<Parameter*> trained = Trained();
  EXPECT_THAT(Names(trained),
              ElementsAre("b.linear.lora_A", "b.linear.lora_B", "b.qkv.q.lora_A", "b.qkv.q.lora_B",
                          "b.qkv.v.lora_A", "b.qkv.v.lora_B", "b.conv.lora_A", "b.conv.lora_B"));
  const auto expect = [](const Parameter& a, const Parameter& b, const Shape& shape_a,
                         const Shape& shape_b, double fan_in) {
    EXPECT_EQ(a.shape, shape_a);
    EXPECT_EQ(b.shape, shape_b);
    EXPECT_EQ(a.init.kind, Init::Kind::kUniform);
    // Kaiming with a = sqrt(5): sqrt(6 / ((1 + 5) fan_in)).
    EXPECT_FLOAT_EQ(a.init.value, static_cast<float>(1 / std::sqrt(fan_in)));
    EXPECT_EQ(b.init.kind, Init::Kind::kConstant);
    EXPECT_EQ(b.init.value, 0);
  };
  expect(*trained[0], *trained[1], {2, 5}, {3, 2}, 5);
  expect(*trained[2], *trained[3], {2, 8}, {8, 2}, 8);
  expect(*trained[4], *trained[5], {2, 8}, {8, 2}, 8);
  expect(*trained[6], *trained[7], {2, 3, 3, 3}, {4, 2}, 27);
  EXPECT_TRUE(HasAdapters(model_));
  EXPECT_TRUE(model_.Statistics()[0]->frozen);
}

TEST_F(LoraTest, ALayerChosenAsAWholeHasOneAdapter) {
  Adapt(Of({"b.qkv.q", "b.qkv"}));
  EXPECT_THAT(Names(Trained()), ElementsAre("b.qkv.lora_A", "b.qkv.lora_B"));
  EXPECT_EQ(Trained()[1]->shape, (Shape{24, 2}));
}

TEST_F(LoraTest, PatternsThatMatchNothingAreRefused) {
  const absl::Status status = AddAdapters(model_, Of({"*.linear", "*.qvk", "b.norm"}));
  EXPECT_EQ(std::string(status.message()),
            "no layer that can be adapted matches '*.qvk'; there are b.qkv, b.qkv.k, b.qkv.q, "
            "b.qkv.v, b.up\n"
            "no layer that can be adapted matches 'b.norm'; there are b.down, b.conv, b.qkv, b.up, "
            "b.linear");
  EXPECT_FALSE(HasAdapters(model_));
}

TEST(LoraOptionsTest, ScalesByRankOrItsRoot) {
  EXPECT_FLOAT_EQ((LoraOptions{.layers = {}, .rank = 4, .alpha = 6}).scale(), 1.5f);
  EXPECT_FLOAT_EQ(
      (LoraOptions{.layers = {}, .rank = 4, .alpha = 6, .rank_stabilised = true}).scale(), 3.0f);
}

// The chain rule: what W' = W + s B A would get as a plain layer's weight is what A and B get.
TEST_F(LoraTest, OutputsAndGradientsAreThoseOfTheProductInTheWeight) {
  Adapt(Of({"*.linear", "*.conv", "*.qkv.q", "*.qkv.v"}));
  RandomizeB();
  const Array flat = RandomArray({4, 5}, 1), wide = RandomArray({4, 8}, 2),
              image = RandomArray({2, 7, 7, 3}, 3);
  const Passed linear = Run(block_->linear, flat), qkv = Run(block_->qkv, wide),
               convolution = Run(block_->convolution, image);
  std::vector<std::vector<double>> gradients;
  for (Parameter* parameter : Trained()) gradients.push_back(Values(parameter->gradient).value);

  MergedAdapters merged(model_, kernels_);
  for (AdaptableLayer* layer :
       std::vector<AdaptableLayer*>{&block_->linear, &block_->qkv, &block_->convolution}) {
    layer->weight().trainable = true;
  }
  const Passed plain_linear = Run(block_->linear, flat), plain_qkv = Run(block_->qkv, wide),
               plain_convolution = Run(block_->convolution, image);
  for (const auto& [adapted, plain] :
       {std::pair(&linear, &plain_linear), std::pair(&qkv, &plain_qkv),
        std::pair(&convolution, &plain_convolution)}) {
    EXPECT_TRUE(IsNear(plain->y, adapted->y, kTolerance));
    EXPECT_TRUE(IsNear(plain->dx, adapted->dx, kTolerance));
  }

  size_t next = 0;
  for (AdaptableLayer* layer :
       std::vector<AdaptableLayer*>{&block_->linear, &block_->qkv, &block_->convolution}) {
    const Array dw = Values(layer->weight().gradient);
    const int64_t in = layer->weight().shape.elements() / layer->weight().shape[0];
    for (const Adapter& adapter : layer->adapters()) {
      const Array a = Values(adapter.a().value), b = Values(adapter.b().value);
      const int64_t first = adapter.outputs().first, count = adapter.outputs().count;
      Array da(adapter.a().shape), db(adapter.b().shape);
      for (int64_t o = 0; o < count; ++o) {
        for (int64_t r = 0; r < 2; ++r) {
          for (int64_t i = 0; i < in; ++i) {
            const double w = dw.value[(first + o) * in + i];
            da.value[r * in + i] += 1.5 * b.value[o * 2 + r] * w;
            db.value[o * 2 + r] += 1.5 * a.value[r * in + i] * w;
          }
        }
      }
      for (const Array& expected : {da, db}) {
        Array actual(expected.shape);
        actual.value = gradients[next++];
        EXPECT_TRUE(IsNear(expected, actual, kTolerance)) << layer->name();
      }
    }
  }
  EXPECT_EQ(next, gradients.size());
}

// The fused MLP is taken apart where it is adapted; not a bit of it changes.
TEST_F(LoraTest, ComputesWhatItDidBeforeItIsTrained) {
  const Array x = RandomArray({70, 32}, 1);
  const auto mlp = [&](Pass& pass, const Variable& in) {
    return RunMlp(pass, in, block_->up, block_->down, &in);
  };
  Materialize(model_.Parameters(), 1, kernels_);
  const Passed before = Run(mlp, x);
  const Passed qkv = Run(block_->qkv, RandomArray({4, 8}, 2));
  Adapt(Of({"*.up", "*.down", "*.qkv.k"}));
  const Passed after = Run(mlp, x);
  EXPECT_TRUE(SameBits(before.y, after.y));
  EXPECT_TRUE(SameBits(qkv.y, Run(block_->qkv, RandomArray({4, 8}, 2)).y));
}

TEST_F(LoraTest, MergedAndUnmergedAgreeAndTheBaseComesBack) {
  Adapt(Of({"b"}));
  RandomizeB();
  const Array x = RandomArray({4, 5}, 1), image = RandomArray({2, 7, 7, 3}, 3);
  const Array weight = Values(block_->linear.weight().value);
  const Array unmerged = Run(block_->linear, x).y, seen = Run(block_->convolution, image).y;
  MergedAdapters merged(model_, kernels_);
  EXPECT_FALSE(SameBits(weight, Values(block_->linear.weight().value)));
  Tape tape(kernels_, Tape::Recording::kOff);
  Pass pass{.tape = tape};
  const auto run = [&](auto& layer, const Array& in) {
    return Values(layer(pass, Variable(Upload(kernels_, in))).value);
  };
  EXPECT_TRUE(IsNear(unmerged, run(block_->linear, x), 1e-6));
  EXPECT_TRUE(IsNear(seen, run(block_->convolution, image), 1e-6));
  merged.Unmerge();
  EXPECT_TRUE(SameBits(weight, Values(block_->linear.weight().value)));
  EXPECT_TRUE(SameBits(unmerged, run(block_->linear, x)));
}

// Dropout is of the adapter's input alone.
TEST_F(LoraTest, DropsInputsInTrainingOnly) {
  LoraOptions options = Of({"*.linear"});
  options.dropout = 0.5;
  Adapt(options);
  const Array x = RandomArray({4, 5}, 1);
  const Array base = Run(block_->linear, x).y;
  RandomizeB();
  Tape tape(kernels_, Tape::Recording::kOff);
  Pass train{.tape = tape}, evaluate{.tape = tape, .mode = Pass::Mode::kEvaluate};
  const Variable in(Upload(kernels_, x));
  const Array dropped = Values(block_->linear(train, in).value);
  const Array whole = Values(block_->linear(evaluate, in).value);
  EXPECT_FALSE(IsNear(whole, dropped, 1e-2));
  // By hand: the adapter of the input with the mask of its place.
  Array masked = x;
  const Tensor mask = kernels_.Empty({4, 5});
  kernels_.Fill(mask, 1);
  kernels_.ApplyDropout(DropoutAt(train, "b.linear.lora_A", 0.5f), 0, mask, mask);
  const Array kept = Values(mask);
  for (size_t i = 0; i < masked.value.size(); ++i) masked.value[i] *= kept.value[i];
  const Array of_masked =
      Values(block_->linear(evaluate, Variable(Upload(kernels_, masked))).value);
  const LinearLayer& plain = block_->linear;
  const Array w = Values(plain.weight().value);
  Array expected = dropped;
  for (int64_t row = 0; row < 4; ++row) {
    for (int64_t o = 0; o < 3; ++o) {
      double swap = 0;  // the frozen layer's part of the masked input for that of the whole
      for (int64_t i = 0; i < 5; ++i) {
        swap += (x.value[row * 5 + i] - masked.value[row * 5 + i]) * w.value[o * 5 + i];
      }
      expected.value[row * 3 + o] = of_masked.value[row * 3 + o] + swap;
    }
  }
  EXPECT_TRUE(IsNear(expected, dropped, kTolerance));
  EXPECT_EQ(base.shape, dropped.shape);
}

// Training normalises a frozen layer as evaluation does.
TEST_F(LoraTest, FrozenBatchNormKeepsItsEstimate) {
  Adapt(Of({"*.conv"}));
  RunningStatistics& statistics = *model_.Statistics()[0];
  kernels_.Copy(Upload(kernels_, RandomArray({4}, 5)), statistics.mean);
  std::vector<float> variances = {0.5f, 2, 1, 4};
  kernels_.CopyFromHost(variances.data(), statistics.variance);
  EXPECT_FALSE(statistics.sums.defined());
  const Array x = RandomArray({6, 4}, 6);
  const Passed trained = Run(block_->norm, x, 9);
  Tape tape(kernels_, Tape::Recording::kOff);
  Pass evaluate{.tape = tape, .mode = Pass::Mode::kEvaluate};
  EXPECT_TRUE(
      SameBits(trained.y, Values(block_->norm(evaluate, Variable(Upload(kernels_, x))).value)));
  const Array dy = RandomArray({6, 4}, 9);
  Array dx = x;
  for (size_t i = 0; i < dx.value.size(); ++i) {
    dx.value[i] = trained.y.value[i] > 0 ? dy.value[i] / std::sqrt(variances[i % 4] + 1e-5) : 0;
  }
  EXPECT_TRUE(IsNear(dx, trained.dx, kTolerance));
}

}  // namespace
}  // namespace lockstep
