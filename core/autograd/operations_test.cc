// Every operation against formulas in double: its value, and its gradients against central
// differences.

#include "core/autograd/operations.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "core/autograd/testing/arrays.h"
#include "core/autograd/testing/operation_cases.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using reference::Array;

// Relative to the largest element of a tensor. Operands are normal with standard deviation 1, so
// the terms of the sums (250 at most) are no larger than a few times the largest sum, and rounding
// moves these by some tens of unit roundoffs, 6e-8 each. What is missing, doubled or has the wrong
// sign in a sum of 250 terms shows as 4e-3 or more.
constexpr double kTolerance = 1e-5;

double Dot(const Array& a, const Array& b) {
  return std::inner_product(a.value.begin(), a.value.end(), b.value.begin(), 0.0);
}

// The gradient of <dy, f()> by `x`, which f reads. The step's error is of order step^2, that of
// rounding 1e-16 / step: both some 1e-10, far below fp32.
template <typename Function>
Array CentralDifferences(Array& x, const Array& dy, Function&& f) {
  constexpr double kStep = 1e-5;
  Array gradient(x.shape);
  for (int64_t i = 0; i < x.elements(); ++i) {
    const double at = x[i];
    x.value[i] = at + kStep;
    const double above = Dot(dy, f());
    x.value[i] = at - kStep;
    const double below = Dot(dy, f());
    x.value[i] = at;
    gradient.value[i] = (above - below) / (2 * kStep);
  }
  return gradient;
}

class OperationsTest : public testing::Test {
 protected:
  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
};

class EveryOperation : public OperationsTest, public testing::WithParamInterface<OperationCase> {};

INSTANTIATE_TEST_SUITE_P(Operations, EveryOperation, testing::ValuesIn(OperationCases()),
                         testing::PrintToStringParamName());

TEST_P(EveryOperation, AgreesWithItsFormulaAndCentralDifferences) {
  const OperationCase& operation = GetParam();
  Operands operands = RandomOperands(operation, 1);
  std::vector<Leaf> leaves = MakeLeaves(operands, kernels_);
  const Gradients gradients = RunOperation(operation, operands, kernels_, leaves);

  const auto formula = [&] { return operation.formula(operands.inputs, operands.leaves); };
  EXPECT_TRUE(IsNear(formula(), gradients.output, kTolerance));
  for (size_t i = 0; i < operands.inputs.size(); ++i) {
    const Array expected = CentralDifferences(operands.inputs[i], operands.dy, formula);
    EXPECT_TRUE(IsNear(expected, gradients.inputs[i], kTolerance)) << "of input " << i;
  }
  for (size_t i = 0; i < operands.leaves.size(); ++i) {
    const Array expected = CentralDifferences(operands.leaves[i], operands.dy, formula);
    EXPECT_TRUE(IsNear(expected, gradients.leaves[i], kTolerance)) << "of leaf " << i;
  }
}

// Freezing leaves takes their gradients away, the memory too, and leaves the others as they were.
TEST_P(EveryOperation, FrozenLeavesGetNoGradient) {
  const OperationCase& operation = GetParam();
  const Operands operands = RandomOperands(operation, 2);
  std::vector<Leaf> all_leaves = MakeLeaves(operands, kernels_);
  const Gradients all = RunOperation(operation, operands, kernels_, all_leaves);
  // Frozen from the last on: a bias may be trained only where its weight is.
  for (size_t first_frozen = 0; first_frozen < operands.leaves.size(); ++first_frozen) {
    std::vector<Leaf> leaves = MakeLeaves(operands, kernels_);
    for (size_t i = first_frozen; i < leaves.size(); ++i) leaves[i].trainable = false;
    if (operands.inputs.empty() && first_frozen == 0) continue;  // nothing is left to train
    const Gradients some = RunOperation(operation, operands, kernels_, leaves);
    for (size_t i = 0; i < operands.inputs.size(); ++i) {
      EXPECT_TRUE(SameBits(all.inputs[i], some.inputs[i])) << "input " << i;
    }
    for (size_t i = 0; i < leaves.size(); ++i) {
      EXPECT_TRUE(SameBits(i < first_frozen ? all.leaves[i] : Array(), some.leaves[i])) << i;
      EXPECT_EQ(leaves[i].gradient.defined(), i < first_frozen) << i;
    }
  }
}

TEST_P(EveryOperation, ConstantInputsGetNoGradient) {
  const OperationCase& operation = GetParam();
  const Operands operands = RandomOperands(operation, 3);
  const size_t inputs = operands.inputs.size();
  std::vector<Leaf> all_leaves = MakeLeaves(operands, kernels_);
  const Gradients all = RunOperation(operation, operands, kernels_, all_leaves);
  for (size_t constant = 0; constant < inputs; ++constant) {
    if (inputs == 1 && operands.leaves.empty()) continue;  // nothing is left to train
    std::vector<Leaf> leaves = MakeLeaves(operands, kernels_);
    RunOptions options;
    options.constant_inputs.resize(inputs);
    options.constant_inputs[constant] = true;
    const Gradients some = RunOperation(operation, operands, kernels_, leaves, options);
    for (size_t i = 0; i < inputs; ++i) {
      EXPECT_TRUE(SameBits(i == constant ? Array() : all.inputs[i], some.inputs[i])) << i;
    }
    for (size_t i = 0; i < leaves.size(); ++i) {
      EXPECT_TRUE(SameBits(all.leaves[i], some.leaves[i])) << "leaf " << i;
    }
  }
}

// Zero-bubble pipelines compute the same bits in two halves.
TEST_P(EveryOperation, DeferredWeightGradientsHaveTheSameBits) {
  const OperationCase& operation = GetParam();
  const Operands operands = RandomOperands(operation, 4);
  std::vector<Leaf> leaves = MakeLeaves(operands, kernels_);
  std::vector<Leaf> deferred_leaves = MakeLeaves(operands, kernels_);
  const Gradients once = RunOperation(operation, operands, kernels_, leaves);
  const Gradients halves = RunOperation(operation, operands, kernels_, deferred_leaves,
                                        {.extent = Tape::Extent::kInputsOnly});
  for (size_t i = 0; i < operands.inputs.size(); ++i) {
    EXPECT_TRUE(SameBits(once.inputs[i], halves.inputs[i])) << "input " << i;
  }
  for (size_t i = 0; i < leaves.size(); ++i) {
    EXPECT_TRUE(SameBits(once.leaves[i], halves.leaves[i])) << "leaf " << i;
  }
}

// Leaves add up what several tapes bring, and start anew after ClearGradient.
TEST_P(EveryOperation, MicroBatchesAccumulate) {
  const OperationCase& operation = GetParam();
  Operands first = RandomOperands(operation, 5), second = RandomOperands(operation, 6);
  second.leaves = first.leaves;
  std::vector<Leaf> leaves = MakeLeaves(first, kernels_);
  const Gradients a = RunOperation(operation, first, kernels_, leaves);
  const Gradients sum = RunOperation(operation, second, kernels_, leaves);
  for (Leaf& leaf : leaves) leaf.ClearGradient();
  const Gradients b = RunOperation(operation, second, kernels_, leaves);
  for (size_t i = 0; i < leaves.size(); ++i) {
    // The second contribution may join the sum term by term: not the bits of one addition.
    EXPECT_TRUE(IsNear(reference::Add(a.leaves[i], b.leaves[i]), sum.leaves[i], 1e-6)) << i;
  }
}

// Without recording, an operation is its kernel: the same value, and no memory but its own.
TEST_P(EveryOperation, KeepsNothingWhenNotRecording) {
  const OperationCase& operation = GetParam();
  const Operands operands = RandomOperands(operation, 7);
  std::vector<Leaf> leaves = MakeLeaves(operands, kernels_);
  const Array expected = RunOperation(operation, operands, kernels_, leaves).output;
  for (Leaf& leaf : leaves) leaf.gradient = Tensor();

  Tape tape(kernels_, Tape::Recording::kOff);
  std::vector<Variable> inputs;
  for (const Array& x : operands.inputs) inputs.push_back(tape.Result(Upload(kernels_, x), true));
  std::vector<Leaf*> pointers;
  for (Leaf& leaf : leaves) pointers.push_back(&leaf);
  const int64_t before = allocator_.books().live_total();
  Variable y = operation.run(tape, inputs, pointers);
  EXPECT_TRUE(SameBits(expected, Download(kernels_, y.value)));
  EXPECT_FALSE(y.needs_gradient());
  for (const Leaf& leaf : leaves) EXPECT_EQ(tape.Uses(leaf), 0);
  const bool is_view = !inputs.empty() && y.value.same_storage(inputs[0].value);
  EXPECT_EQ(allocator_.books().live_total() - before, is_view ? 0 : AlignedBytes(y.value.bytes()));
}

TEST_F(OperationsTest, DropoutOfNothingIsTheInputItself) {
  Tape tape(kernels_);
  const Variable x = tape.Result(Upload(kernels_, RandomArray({3}, 1)), true);
  const Variable y = ApplyDropout(tape, {}, x);
  EXPECT_TRUE(y.value.same_storage(x.value));
  EXPECT_EQ(y.gradient, x.gradient);
}

// Two operations share a weight but not their biases: one half of the second operation's gradients
// adds to what is there, the other replaces what an earlier step left.
TEST_F(OperationsTest, LeavesOfOneOperationMayBeOutOfStep) {
  const Array x = RandomArray({6, 5}, 1), w = RandomArray({4, 5}, 2), dy = RandomArray({6, 4}, 3);
  Leaf weight, bias[2];
  weight.value = Upload(kernels_, w);
  for (Leaf& leaf : bias) {
    leaf.value = Upload(kernels_, RandomArray({4}, 4));
    leaf.gradient = Upload(kernels_, Array({4}, std::vector<double>(4, std::nan(""))));
  }
  Tape tape(kernels_);
  const Variable in(Upload(kernels_, x));
  const Variable y =
      Add(tape, Linear(tape, in, weight, &bias[0]), Linear(tape, in, weight, &bias[1]));
  tape.Backward({{y, Upload(kernels_, dy)}});
  const reference::LinearGradients expected = reference::LinearBackward(dy, x, w);
  EXPECT_TRUE(
      IsNear(reference::Scale(expected.dw, 2), Download(kernels_, weight.gradient), kTolerance));
  for (const Leaf& leaf : bias) {
    EXPECT_TRUE(IsNear(expected.dbias, Download(kernels_, leaf.gradient), kTolerance));
  }
}

class LayerNormTest : public OperationsTest {
 protected:
  LayerNormTest() {
    scale_.value = Upload(kernels_, RandomArray({64}, 2));
    shift_.value = Upload(kernels_, RandomArray({64}, 3));
  }
  Variable Norm(Tape& tape, const Variable& x) { return LayerNorm(tape, x, scale_, shift_, 1e-5f); }
  Array NormGradient(const Array& dy) {
    return reference::LayerNormBackward(x_, Download(kernels_, scale_.value), 1e-5, dy).dx;
  }

  const Array x_ = RandomArray({8, 64}, 1), dy_ = RandomArray({8, 64}, 4);
  Leaf scale_, shift_;
};

// What another path has brought to the input is added to within the kernel, in its own memory.
TEST_F(LayerNormTest, AddsToTheGradientThatIsThere) {
  Tape tape(kernels_);
  const Variable x = tape.Result(Upload(kernels_, x_), true);
  int64_t before = 0, after = 0;
  tape.RecordAlways([&] { after = allocator_.books().peak(MemoryClass::kActivations); });
  const Variable normalized = Norm(tape, x);
  tape.RecordAlways([&] {
    allocator_.ResetPeaks();
    before = allocator_.books().live(MemoryClass::kActivations);
  });
  const Variable y = Add(tape, Gelu(tape, x), normalized);
  tape.Backward({{y, Upload(kernels_, dy_)}});
  EXPECT_EQ(after, before);
  EXPECT_TRUE(IsNear(reference::Add(NormGradient(dy_), reference::GeluBackward(x_, dy_)),
                     Download(kernels_, x.gradient->Take()), kTolerance));
}

TEST_F(LayerNormTest, LeavesAGradientAloneThatOthersHold) {
  Tape tape(kernels_);
  const Variable x = tape.Result(Upload(kernels_, x_), true);
  const Variable other = tape.Result(Upload(kernels_, x_), true);
  const Variable y = Add(tape, Add(tape, Norm(tape, x), x), other);
  tape.Backward({{y, Upload(kernels_, dy_)}});
  EXPECT_TRUE(SameBits(dy_, Download(kernels_, other.gradient->Take())));
  EXPECT_TRUE(IsNear(reference::Add(NormGradient(dy_), dy_), Download(kernels_, x.gradient->Take()),
                     kTolerance));
}

// A frozen weight's input is not kept for backward.
TEST_F(OperationsTest, FrozenWeightsGiveTheirInputBack) {
  const Array x = RandomArray({2, 8, 8, 16}, 1);
  for (bool convolution : {false, true}) {
    for (bool trainable : {false, true}) {
      Leaf w;
      w.value = Upload(kernels_, RandomArray(convolution ? Shape{4, 1, 1, 16} : Shape{4, 16}, 2));
      w.trainable = trainable;
      Tape tape(kernels_);
      Variable in = tape.Result(Upload(kernels_, x), true);
      const int64_t before = allocator_.books().live_total();
      const Variable y =
          convolution ? Convolution(tape, in, w, nullptr, {1, 1, 0}) : Linear(tape, in, w, nullptr);
      in.value = Tensor();
      const int64_t output = AlignedBytes(y.value.bytes()), input = x.elements() * 4;
      EXPECT_EQ(allocator_.books().live_total() - before, trainable ? output : output - input);
    }
  }
}

class CrossEntropyTest : public OperationsTest {
 protected:
  static constexpr float kFactor = 0.125f;

  const Array logits_ = RandomArray({6, 5}, 1);
  const std::vector<int32_t> targets_ = {3, 0, -1, 4, -1, 3};
};

TEST_F(CrossEntropyTest, StartsBackwardWithTheGradientOfTheScaledSum) {
  Tape tape(kernels_);
  const Variable logits = tape.Result(Upload(kernels_, logits_), true);
  const CrossEntropy result =
      SoftmaxCrossEntropy(tape, logits, 5, Upload(kernels_, {6}, targets_), kFactor);
  tape.Backward();

  Array x = logits_;
  const auto losses = [&] { return reference::SoftmaxCrossEntropy(x, targets_, 1).losses; };
  EXPECT_TRUE(IsNear(losses(), Download(kernels_, result.losses), kTolerance));
  const Array factors(Shape{6}, std::vector<double>(6, kFactor));
  EXPECT_TRUE(IsNear(CentralDifferences(x, factors, losses),
                     Download(kernels_, logits.gradient->Take()), kTolerance));
  // Somebody holds the logits, so they are still there.
  EXPECT_TRUE(SameBits(logits_, Download(kernels_, logits.value)));
}

TEST_F(CrossEntropyTest, UsesUpLogitsThatNobodyElseHolds) {
  Tape tape(kernels_);
  Variable logits = tape.Result(Upload(kernels_, logits_), true);
  const std::shared_ptr<GradientSlot> slot = logits.gradient;
  const Tensor targets = Upload(kernels_, {6}, targets_);
  allocator_.ResetPeaks();
  const int64_t before = allocator_.books().live_total();
  const CrossEntropy result = SoftmaxCrossEntropy(tape, std::move(logits), 5, targets, kFactor);
  EXPECT_EQ(allocator_.books().peak_total() - before, AlignedBytes(result.losses.bytes()));
  tape.Backward();
  EXPECT_TRUE(IsNear(reference::SoftmaxCrossEntropy(logits_, targets_, kFactor).dlogits,
                     Download(kernels_, slot->Take()), kTolerance));
}

TEST_F(CrossEntropyTest, OfConstantLogitsIsTheLossAlone) {
  Tape tape(kernels_, Tape::Recording::kOff);
  const Variable logits(Upload(kernels_, logits_));
  const Tensor targets = Upload(kernels_, {6}, targets_);
  const int64_t before = allocator_.books().live_total();
  const CrossEntropy result = SoftmaxCrossEntropy(tape, logits, 5, targets, kFactor);
  EXPECT_EQ(allocator_.books().live_total() - before, AlignedBytes(result.losses.bytes()));
  EXPECT_TRUE(SameBits(logits_, Download(kernels_, logits.value)));
}

}  // namespace
}  // namespace lockstep
