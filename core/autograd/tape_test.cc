#include "core/autograd/tape.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/operations.h"
#include "core/autograd/testing/arrays.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using reference::Array;
using testing::ElementsAre;
using testing::IsEmpty;

class TapeTest : public testing::Test {
 protected:
  static constexpr float kEpsilon = 1e-5f;

  Tensor Random(const Shape& shape, uint64_t stream) {
    return Upload(kernels_, RandomArray(shape, stream));
  }
  Tensor Filled(const Shape& shape, float value) {
    Tensor t = kernels_.Empty(shape);
    kernels_.Fill(t, value);
    return t;
  }
  Leaf RandomLeaf(const Shape& shape, uint64_t stream) {
    Leaf leaf;
    leaf.value = Tensor::Empty(allocator_, shape, DType::kF32, MemoryClass::kParameters);
    kernels_.Copy(Random(shape, stream), leaf.value);
    return leaf;
  }
  // The one value that all elements have.
  static float Uniform(const Tensor& t) {
    for (float value : t.span<float>()) EXPECT_EQ(value, t.data<float>()[0]);
    return t.data<float>()[0];
  }
  int64_t Live(MemoryClass memory_class) const { return allocator_.books().live(memory_class); }
  // Appends `event` to events_ when backward passes here.
  void Mark(Tape& tape, const std::string& event) {
    tape.RecordAlways([this, event] { events_.push_back(event); });
  }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
  std::vector<std::string> events_;
};

TEST_F(TapeTest, StepsRunInReverseOrderOfRecording) {
  Tape tape(kernels_);
  const Variable y = tape.Result(Filled({2}, 1), true);
  Mark(tape, "first");
  tape.Record(y, [this](Tensor dy) {
    events_.push_back("second");
    EXPECT_EQ(Uniform(dy), 5);
  });
  Mark(tape, "third");
  tape.Backward({{y, Filled({2}, 5)}});
  EXPECT_THAT(events_, ElementsAre("third", "second", "first"));
}

TEST_F(TapeTest, StepsOfOutputsWithoutGradientAreSkipped) {
  Tape tape(kernels_);
  const Variable x = tape.Result(Filled({2}, 1), true);
  const Variable used = Relu(tape, x);
  const Variable unused = Add(tape, x, x);
  tape.Record(unused, [this](Tensor) { events_.push_back("unused"); });
  Mark(tape, "always");
  tape.Backward({{used, Filled({2}, 3)}});
  EXPECT_THAT(events_, ElementsAre("always"));
  EXPECT_EQ(Uniform(x.gradient->Take()), 3);
}

TEST_F(TapeTest, NothingIsRecordedForWhatNeedsNoGradient) {
  Tape tape(kernels_);
  const Variable constant(Filled({2}, 1));
  const Variable y = Relu(tape, constant);
  EXPECT_FALSE(y.needs_gradient());
  tape.Record(y, [this](Tensor) { events_.push_back("step"); });
  tape.Backward();
  EXPECT_THAT(events_, IsEmpty());
}

TEST_F(TapeTest, RecordsNothingWhenOff) {
  Tape tape(kernels_, Tape::Recording::kOff);
  EXPECT_FALSE(tape.recording());
  EXPECT_FALSE(tape.Result(Filled({2}, 1), true).needs_gradient());
  Leaf w = RandomLeaf({3, 2}, 1);
  const Variable y = Linear(tape, Variable(Random({4, 2}, 2)), w, nullptr);
  EXPECT_FALSE(y.needs_gradient());
  EXPECT_EQ(tape.Uses(w), 0);
  bool kept = false;
  const std::shared_ptr<int> witness = std::make_shared<int>();
  tape.RecordAlways([witness, &kept] { kept = true; });
  EXPECT_EQ(witness.use_count(), 1);
  EXPECT_FALSE(kept);
}

TEST_F(TapeTest, AForgetfulTapeKnowsWhatNeedsAGradientButKeepsNothing) {
  Tape tape(kernels_, Tape::Recording::kForgetful);
  EXPECT_FALSE(tape.recording());
  Leaf w = RandomLeaf({3, 2}, 1);
  const Tensor x = Random({4, 2}, 2);
  const std::shared_ptr<int> witness = std::make_shared<int>();
  const Variable y = Relu(tape, Linear(tape, Variable(x), w, nullptr));
  EXPECT_TRUE(y.needs_gradient());
  tape.Record(y, {&w}, [witness](Tensor) {});
  tape.RecordAlways([witness] {});
  EXPECT_EQ(witness.use_count(), 1);
  EXPECT_EQ(tape.Uses(w), 0);
  EXPECT_FALSE(Relu(tape, Variable(x)).needs_gradient());
}

// --- the flow of gradients ----------------------------------------------------------------------

TEST_F(TapeTest, SeveralSeedsAddUp) {
  Tape tape(kernels_);
  const Variable x = tape.Result(Filled({2}, 1), true);
  const Variable y = Relu(tape, x), z = Add(tape, x, y);
  tape.Backward({{y, Filled({2}, 1)}, {z, Filled({2}, 10)}, {y, Filled({2}, 100)}});
  // z brings 10 to x and 10 to y; y passes on 1 + 100 + 10.
  EXPECT_EQ(Uniform(x.gradient->Take()), 121);
}

TEST_F(TapeTest, OneGradientInManySlotsIsNotCorrupted) {
  Tape tape(kernels_);
  const Variable x = tape.Result(Filled({2}, 1), true);
  const Variable other = tape.Result(Filled({2}, 1), true);
  const Variable a = Add(tape, x, x);      // 2 x
  const Variable b = Relu(tape, a);        // 2 x
  const Variable c = Add(tape, a, b);      // 4 x
  const Variable d = Add(tape, c, other);  // 4 x + other
  const Variable e = Add(tape, d, a);      // 6 x + other
  const Variable f = Add(tape, other, e);  // 6 x + 2 other
  const Tensor seed = Filled({2}, 1);
  tape.Backward({{f, seed}});
  EXPECT_EQ(Uniform(x.gradient->Take()), 6);
  EXPECT_EQ(Uniform(other.gradient->Take()), 2);
  EXPECT_EQ(Uniform(seed), 1);  // the caller's own
}

// The gradient that a layer shares with its residual path is read again when weights are deferred.
TEST_F(TapeTest, DeferredWeightsSeeTheGradientThatTheResidualShared) {
  const Array x = RandomArray({6, 5}, 1), dy = RandomArray({6, 5}, 3);
  Leaf w = RandomLeaf({5, 5}, 2);
  Tape tape(kernels_);
  const Variable in = tape.Result(Upload(kernels_, x), true);
  const Variable twice = Add(tape, in, in);
  const Variable y = Linear(tape, twice, w, nullptr, &twice);
  tape.Backward({{y, Upload(kernels_, dy)}}, Tape::Extent::kInputsOnly);
  in.gradient->Add(kernels_, Random({6, 5}, 4));
  tape.RunDeferred();
  const Array expected =
      reference::LinearBackward(dy, reference::Scale(x, 2), Download(kernels_, w.value)).dw;
  EXPECT_TRUE(IsNear(expected, Download(kernels_, w.gradient), 1e-6));
}

// --- memory -------------------------------------------------------------------------------------

TEST_F(TapeTest, EachStepGivesBackWhatItKept) {
  constexpr int64_t kBytes = 1024;
  std::vector<int64_t> live;
  {
    Tape tape(kernels_);
    Variable x = tape.Result(Random({kBytes / 4}, 1), true);
    Variable y = x;
    for (int i = 0; i < 4; ++i) {
      tape.RecordAlways([&] { live.push_back(Live(MemoryClass::kActivations) / kBytes); });
      y = Gelu(tape, y);
    }
    x.value = Tensor();
    EXPECT_EQ(Live(MemoryClass::kActivations), 5 * kBytes);  // four inputs and the result
    std::vector<Tape::Seed> seeds(1);  // a braced list would hold copies until Backward returns
    seeds[0] = {std::exchange(y, Variable()), Random({kBytes / 4}, 2)};
    tape.Backward(std::move(seeds));
    // One input less after each step, and the gradient.
    EXPECT_THAT(live, ElementsAre(4, 3, 2, 1));
    EXPECT_EQ(Live(MemoryClass::kActivations), kBytes);
    x.gradient->Take();
    EXPECT_EQ(Live(MemoryClass::kActivations), 0);
  }
  EXPECT_EQ(allocator_.books().live_total(), 0);
}

TEST_F(TapeTest, BackwardLeavesNothingButLeafGradients) {
  Leaf w = RandomLeaf({4, 3, 3, 3}, 1), scale = RandomLeaf({4}, 2), shift = RandomLeaf({4}, 3);
  Leaf fc = RandomLeaf({5, 4}, 4), fc_bias = RandomLeaf({5}, 5);
  for (Tape::Extent extent : {Tape::Extent::kAll, Tape::Extent::kInputsOnly}) {
    Tape tape(kernels_);
    {
      Variable x(Random({2, 6, 6, 3}, 6));
      x = Convolution(tape, x, w, nullptr, {3, 1, 1});
      const Variable shortcut = x;
      x = BatchNorm(tape, x, scale, shift, &shortcut, {.activation = Activation::kRelu},
                    kernels_.Empty({4}), kernels_.Empty({4}));
      x = GlobalAveragePool(tape, MaxPool(tape, x, {3, 2, 1}));
      x = Linear(tape, x, fc, &fc_bias);
      const Tensor targets = Upload(kernels_, {2}, {3, 1});
      SoftmaxCrossEntropy(tape, std::move(x), 5, targets, 1);
    }
    EXPECT_GT(Live(MemoryClass::kActivations), 0);
    tape.Backward({}, extent);
    if (extent == Tape::Extent::kInputsOnly) {
      EXPECT_GT(Live(MemoryClass::kActivations), 0);  // what the weights still need
      tape.RunDeferred();
    }
    EXPECT_EQ(Live(MemoryClass::kActivations), 0);
    EXPECT_EQ(Live(MemoryClass::kWorkspace), 0);
    EXPECT_EQ(Live(MemoryClass::kGradients), Live(MemoryClass::kParameters));
  }
}

TEST_F(TapeTest, DeferredWeightsGiveBackWhatTheyKeptAsTheyRun) {
  constexpr int64_t kBytes = 1024;
  Leaf w[3];
  for (Leaf& leaf : w) leaf = RandomLeaf({16, 16}, 1);
  Tape tape(kernels_);
  std::vector<int64_t> live;
  tape.OnLeafReady([&](Leaf&) { live.push_back(Live(MemoryClass::kActivations) / kBytes); });
  std::vector<Tape::Seed> seeds(1);
  {
    Variable x(Random({16, 16}, 2));
    for (Leaf& leaf : w) x = Linear(tape, x, leaf, nullptr);
    seeds[0] = {x, Random({16, 16}, 3)};
  }
  tape.Backward(std::move(seeds), Tape::Extent::kInputsOnly);
  EXPECT_EQ(Live(MemoryClass::kActivations), 6 * kBytes);  // input and gradient of each layer
  tape.RunDeferred();
  EXPECT_THAT(live, ElementsAre(4, 2, 0));
}

TEST_F(TapeTest, AnAbandonedTapeGivesEverythingBack) {
  {
    Leaf w = RandomLeaf({4, 4}, 1);
    Tape tape(kernels_);
    Variable x = Linear(tape, Variable(Random({3, 4}, 2)), w, nullptr);
    x = Gelu(tape, x);
  }
  EXPECT_EQ(allocator_.books().live_total(), 0);
}

// --- leaves -------------------------------------------------------------------------------------

class LeafTest : public TapeTest {
 protected:
  // Notes "w" and the like when a leaf is ready, with "!" if nothing came.
  void NoteReady(Tape& tape) {
    tape.OnLeafReady([this](Leaf& leaf) {
      const std::string name = &leaf == &w_ ? "w" : &leaf == &v_ ? "v" : "bias";
      events_.push_back(name + (leaf.has_gradient() ? "" : "!"));
    });
  }

  Leaf w_ = RandomLeaf({4, 4}, 1), v_ = RandomLeaf({4, 4}, 2), bias_ = RandomLeaf({4}, 3);
  const Tensor input_ = Random({6, 4}, 4), dy_ = Random({6, 4}, 5);
};

TEST_F(LeafTest, IsReadyOnceAfterItsLastUse) {
  Tape tape(kernels_);
  NoteReady(tape);
  Mark(tape, "start");
  Variable x = Linear(tape, Variable(input_), w_, &bias_);
  Mark(tape, "before w again");
  x = Linear(tape, x, w_, nullptr);
  Mark(tape, "before v");
  x = Linear(tape, x, v_, nullptr);
  EXPECT_EQ(tape.Uses(w_), 2);
  EXPECT_EQ(tape.Uses(v_), 1);
  EXPECT_EQ(tape.Uses(bias_), 1);
  tape.Backward({{x, dy_}});
  EXPECT_THAT(events_, ElementsAre("v", "before v", "before w again", "w", "bias", "start"));
}

TEST_F(LeafTest, UsedTwiceGathersBothContributions) {
  Tape tape(kernels_);
  const Variable x(input_), y = Linear(tape, x, w_, nullptr), z = Linear(tape, y, w_, nullptr);
  tape.Backward({{z, dy_}});
  const Array w = Download(kernels_, w_.value), dz = Download(kernels_, dy_);
  const auto second = reference::LinearBackward(dz, Download(kernels_, y.value), w);
  const auto first = reference::LinearBackward(second.dx, Download(kernels_, input_), w);
  EXPECT_TRUE(IsNear(reference::Add(first.dw, second.dw), Download(kernels_, w_.gradient), 1e-6));
}

// Otherwise a reducer that waits for every leaf that forward used would wait for ever.
TEST_F(LeafTest, IsReadyThoughNoGradientReachedIt) {
  Tape tape(kernels_);
  NoteReady(tape);
  const Variable x(input_);
  const Variable used = Linear(tape, x, w_, nullptr);
  const Variable dead = Linear(tape, Linear(tape, x, v_, nullptr), w_, &bias_);
  Mark(tape, "start");
  tape.Backward({{used, dy_}});
  EXPECT_FALSE(dead.gradient == nullptr);
  EXPECT_THAT(events_, ElementsAre("start", "bias!", "v!", "w"));
  EXPECT_FALSE(v_.has_gradient());
  EXPECT_FALSE(v_.gradient.defined());
}

TEST_F(LeafTest, DeferredOnesAreReadyInRunDeferred) {
  Leaf scale = RandomLeaf({4}, 6), shift = RandomLeaf({4}, 7);
  Tape tape(kernels_);
  NoteReady(tape);
  Variable x = Linear(tape, Variable(input_), v_, nullptr);
  x = LayerNorm(tape, x, scale, shift, kEpsilon);  // one kernel gives all: nothing to defer
  x = Linear(tape, x, w_, &bias_);
  Mark(tape, "start");
  tape.Backward({{x, dy_}}, Tape::Extent::kInputsOnly);
  events_.push_back("deferred");
  EXPECT_FALSE(w_.has_gradient());
  EXPECT_FALSE(v_.gradient.defined());
  EXPECT_TRUE(scale.has_gradient());
  tape.RunDeferred();
  EXPECT_TRUE(v_.has_gradient());
  EXPECT_THAT(events_, ElementsAre("start", "bias", "bias", "deferred", "w", "bias", "v"));
  events_.clear();
  tape.RunDeferred();  // nothing is left
  EXPECT_THAT(events_, IsEmpty());
}

TEST_F(LeafTest, FrozenOnesHaveNoUsesAndNoMemory) {
  w_.trainable = bias_.trainable = false;
  Tape tape(kernels_);
  NoteReady(tape);
  const Variable x = tape.Result(input_, true);
  const Variable y = Linear(tape, Linear(tape, x, v_, nullptr), w_, &bias_);
  EXPECT_EQ(tape.Uses(w_), 0);
  tape.Backward({{y, dy_}});
  EXPECT_THAT(events_, ElementsAre("v"));
  EXPECT_FALSE(w_.gradient.defined());
  EXPECT_FALSE(bias_.gradient.defined());
  EXPECT_EQ(Live(MemoryClass::kGradients), v_.gradient.bytes());
  EXPECT_TRUE(v_.has_gradient());
  EXPECT_FALSE(x.gradient->empty());
}

TEST_F(LeafTest, FrozenOnesOnConstantsAreConstant) {
  w_.trainable = bias_.trainable = false;
  Tape tape(kernels_);
  EXPECT_FALSE(Linear(tape, Variable(input_), w_, &bias_).needs_gradient());
}

TEST_F(LeafTest, WritesIntoTheBufferThatAStrategyLaidOut) {
  const Tensor flat = Filled({64}, std::nanf(""));
  w_.gradient = flat.View(16, {4, 4});
  for (int step = 0; step < 2; ++step) {
    w_.ClearGradient();
    for (int micro_batch = 1; micro_batch <= 2; ++micro_batch) {
      Tape tape(kernels_);
      const Variable y = Linear(tape, Variable(input_), w_, nullptr);
      tape.Backward({{y, dy_}});
      const Array once =
          reference::LinearBackward(Download(kernels_, dy_), Download(kernels_, input_),
                                    Download(kernels_, w_.value))
              .dw;
      EXPECT_TRUE(w_.gradient.same_storage(flat));
      EXPECT_TRUE(
          IsNear(reference::Scale(once, micro_batch), Download(kernels_, w_.gradient), 1e-6));
    }
  }
  EXPECT_EQ(Live(MemoryClass::kGradients), 0);
  for (int i : {0, 15, 32, 63}) EXPECT_TRUE(std::isnan(flat.data<float>()[i])) << i;
}

TEST_F(LeafTest, MarkGradientMakesTheNextContributionAdd) {
  w_.gradient = Filled({4, 4}, 100);
  w_.MarkGradient();
  Tape tape(kernels_);
  const Variable y = Linear(tape, Variable(Filled({6, 4}, 1)), w_, nullptr);
  tape.Backward({{y, Filled({6, 4}, 1)}});
  EXPECT_EQ(Uniform(w_.gradient), 106);
}

// --- recomputation ------------------------------------------------------------------------------

class RecomputeTest : public LeafTest {
 protected:
  static constexpr int64_t kAligned = 128;  // bytes of a tensor [6, 4]

  // w is used before, inside and behind the region, v inside it only. The residual path around the
  // region has brought its gradient when backward reaches the normalisation inside.
  Variable Run(Tape& tape, bool recompute, bool nested = false) {
    const Variable x = Linear(tape, Variable(input_), w_, &bias_);
    const auto gelu_of_v = [this, &tape](Variables in) {
      ++runs_;
      return Variables{Gelu(tape, Linear(tape, in[0], v_, nullptr))};
    };
    const Tape::Region region = [this, &tape, gelu_of_v, nested](Variables in) {
      Variables y = {LayerNorm(tape, in[0], scale_, shift_, kEpsilon)};
      y = nested && tape.recording() ? tape.Recompute(y, gelu_of_v, gelu_of_v) : gelu_of_v(y);
      return Variables{Linear(tape, y[0], w_, nullptr, in.data())};
    };
    const Variable y = recompute ? tape.Recompute({x}, region, region)[0] : region({x})[0];
    return Add(tape, x, Linear(tape, y, w_, nullptr));
  }

  // The gradients of all leaves of one backward.
  std::vector<std::vector<float>> Gradients(bool recompute, bool nested, Tape::Extent extent) {
    Tape tape(kernels_);
    events_.clear();
    NoteReady(tape);
    const Variable y = Run(tape, recompute, nested);
    tape.Backward({{y, dy_}}, extent);
    tape.RunDeferred();
    std::vector<std::vector<float>> gradients;
    for (Leaf* leaf : {&w_, &v_, &bias_, &scale_, &shift_}) {
      const auto values = leaf->gradient.span<float>();
      gradients.emplace_back(values.begin(), values.end());
      leaf->ClearGradient();
    }
    return gradients;
  }

  Leaf scale_ = RandomLeaf({4}, 6), shift_ = RandomLeaf({4}, 7);
  int runs_ = 0;
};

TEST_F(RecomputeTest, GradientsHaveTheSameBitsAndLeavesAreReadyInTheSameOrder) {
  for (const Tape::Extent extent : {Tape::Extent::kAll, Tape::Extent::kInputsOnly}) {
    const auto kept = Gradients(/*recompute=*/false, /*nested=*/false, extent);
    const std::vector<std::string> ready = events_;
    EXPECT_EQ(ready.size(), 5u);
    EXPECT_EQ(Gradients(true, false, extent), kept);
    EXPECT_EQ(events_, ready);
    runs_ = 0;
    EXPECT_EQ(Gradients(true, true, extent), kept);
    EXPECT_EQ(events_, ready);
    EXPECT_EQ(runs_, 3);  // in forward, in the region's second run, and in its own
  }
}

TEST_F(RecomputeTest, CountsTheUsesOfForward) {
  Tape tape(kernels_);
  const Variable y = Run(tape, /*recompute=*/true);
  EXPECT_EQ(tape.Uses(w_), 3);
  EXPECT_EQ(tape.Uses(v_), 1);
  tape.Backward({{y, dy_}});
  EXPECT_EQ(tape.Uses(w_), 3);
}

TEST_F(RecomputeTest, KeepsTheInputsOnlyAndGivesThemBack) {
  const auto kept = [this](bool recompute) {
    const int64_t before = Live(MemoryClass::kActivations);
    Tape tape(kernels_);
    Variable x = tape.Result(Random({6, 4}, 8), true);
    const Tape::Region region = [&tape](Variables in) {
      return Variables{Gelu(tape, Gelu(tape, Gelu(tape, in[0])))};
    };
    Variable y = recompute ? tape.Recompute({x}, region, region)[0] : region({x})[0];
    x.value = Tensor();
    const int64_t live = Live(MemoryClass::kActivations) - before;
    std::vector<Tape::Seed> seeds(1);
    seeds[0] = {std::exchange(y, Variable()), Random({6, 4}, 9)};
    tape.Backward(std::move(seeds));
    x.gradient->Take();
    EXPECT_EQ(Live(MemoryClass::kActivations), before);
    return live;
  };
  EXPECT_EQ(kept(false), 4 * kAligned);
  EXPECT_EQ(kept(true), 2 * kAligned);
}

TEST_F(RecomputeTest, NothingIsRunAgainThatNeedsNoGradient) {
  v_.trainable = false;
  Tape tape(kernels_);
  const Tape::Region region = [this, &tape](Variables in) {
    ++runs_;
    return Variables{Linear(tape, in[0], v_, nullptr)};
  };
  const Variable y =
      Linear(tape, tape.Recompute({Variable(input_)}, region, region)[0], w_, nullptr);
  tape.Backward({{y, dy_}});
  EXPECT_EQ(runs_, 1);
  EXPECT_TRUE(w_.has_gradient());
}

// The region's leaves are ready though nothing came.
TEST_F(RecomputeTest, AnOutputThatReceivesNoGradientGivesNone) {
  Tape tape(kernels_);
  NoteReady(tape);
  const Tape::Region region = [this, &tape](Variables in) {
    return Variables{Linear(tape, in[0], v_, nullptr)};
  };
  const Variable x(input_), used = Linear(tape, x, w_, nullptr);
  const Variables dead = tape.Recompute({x}, region, region);
  tape.Backward({{used, dy_}});
  EXPECT_TRUE(dead[0].needs_gradient());
  EXPECT_THAT(events_, ElementsAre("v!", "w"));
}

}  // namespace
}  // namespace lockstep
