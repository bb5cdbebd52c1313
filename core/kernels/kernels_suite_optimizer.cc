// Optimizers over several steps.

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "core/kernels/kernels_suite.h"

namespace lockstep {
namespace {

using reference::Result;

constexpr int64_t kSizes[] = {1, 3, 17, 0, 63, 65, 100, 50001};
constexpr int kSteps = 5;

// A dozen operations a step, whose errors the state carries on.
constexpr double kRoundings = 12 * kSteps;

// An optimizer as it is tested: its options, and a step's.
struct Configuration {
  OptimizerRule optimizer;
  OptimizerStep step;
};

const std::vector<Configuration>& Configurations() {
  static const auto& configurations = *new std::vector<Configuration>{
      {Sgd(), {.learning_rate = 0.3f}},
      {Sgd(), {.learning_rate = 0.3f, .weight_decay = 0.2f}},
      {Sgd{.momentum = 0.9f}, {.learning_rate = 0.1f}},
      {Sgd{.momentum = 0.7f, .nesterov = true}, {.learning_rate = 0.1f, .weight_decay = 0.1f}},
      {AdamW(), {.learning_rate = 1e-2f}},
      {AdamW{.beta1 = 0.5f, .beta2 = 0.7f, .epsilon = 0.5f},
       {.learning_rate = 0.3f, .weight_decay = 0.2f}},
      {AdamW{.beta1 = 0, .beta2 = 0.99f}, {.learning_rate = 0.1f, .weight_decay = 0.01f}},
      {Lion(), {.learning_rate = 1e-2f}},
      {Lion{.beta1 = 0.5f, .beta2 = 0.75f}, {.learning_rate = 0.3f, .weight_decay = 0.2f}},
      {Lion{.beta1 = 0, .beta2 = 0.99f}, {.learning_rate = 0.1f, .weight_decay = 0.01f}},
  };
  return configurations;
}

}  // namespace

std::vector<KernelsSuite::Optimized> KernelsSuite::MakeOptimized(absl::Span<const int64_t> sizes,
                                                                 const OptimizerRule& optimizer) {
  const size_t states = StateNames(optimizer).size();
  const DType gradients[] = {dtype(), DType::kF32, DType::kBF16, DType::kF16};
  const DType copies[] = {dtype(), DType::kF16, DType::kBF16};
  std::vector<Optimized> all(sizes.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const Input start = Normal({sizes[i]}, 0, 1, DType::kF32);
    Optimized& one = all[i];
    one.tensor.gradient = Output(start.shape, gradients[i % 4]);
    one.tensor.parameter = start.tensor;
    if (i % 4 != 3) one.tensor.copy = Output(start.shape, copies[i % 3]);
    one.tensor.decays = i % 5 % 2 == 0;
    one.parameter = Result(start);
    for (size_t s = 0; s < states; ++s) {
      one.tensor.states[s] = Output(start.shape, DType::kF32);
      kernels().Fill(one.tensor.states[s], 0);
    }
    one.states.fill(Result(start.shape));
  }
  return all;
}

void KernelsSuite::TakeStep(const OptimizerRule& optimizer, const OptimizerStep& step,
                            std::vector<Optimized>& all) {
  std::vector<Kernels::OptimizedTensor> tensors;
  for (Optimized& one : all) {
    one.gradient = Normal(one.parameter.shape, 0, 1, one.tensor.gradient.dtype());
    one.tensor.gradient = one.gradient.tensor;
    tensors.push_back(one.tensor);
    OptimizerStep own = step;
    if (!one.tensor.decays) own.weight_decay = 0;
    reference::UpdateParameter(optimizer, own, one.gradient, one.parameter, one.states);
  }
  kernels().UpdateParameters(optimizer, step, tensors);
}

testing::AssertionResult KernelsSuite::Agrees(const std::vector<Optimized>& all, double roundings) {
  for (size_t i = 0; i < all.size(); ++i) {
    const Kernels::OptimizedTensor& tensor = all[i].tensor;
    const auto where = [&] {
      return testing::AssertionFailure() << "tensor " << i << " of " << tensor.parameter.shape();
    };
    testing::AssertionResult result = Agrees(all[i].parameter, tensor.parameter, roundings);
    if (!result) return where() << ", parameter: " << result.message();
    for (size_t s = 0; s < all[i].states.size(); ++s) {
      if (!tensor.states[s].defined()) continue;
      result = Agrees(all[i].states[s], tensor.states[s], roundings);
      if (!result) return where() << ", state " << s << ": " << result.message();
    }
    if (!tensor.copy.defined()) continue;
    result = SameBits(tensor.copy, Given(Downloaded(tensor.parameter), tensor.copy.dtype()).tensor);
    if (!result) return where() << ", copy: " << result.message();
  }
  return testing::AssertionSuccess();
}

namespace {

TEST_P(KernelsSuite, Optimizers) {
  for (const auto& [optimizer, first_step] : Configurations()) {
    std::vector<Optimized> all = MakeOptimized(kSizes, optimizer);
    OptimizerStep step = first_step;
    for (step.number = 1; step.number <= kSteps; ++step.number) {
      SCOPED_TRACE(testing::Message() << Name(optimizer) << ", step " << step.number);
      step.gradient_factor = step.number % 2 == 0 ? 0.25f : 1.0f;  // as clipping gives it
      TakeStep(optimizer, step, all);
      EXPECT_TRUE(Agrees(all, kRoundings));
    }
  }
}

TEST_P(KernelsSuite, EveryOptimizerIsTested) {
  for (const OptimizerRule& optimizer : AllOptimizers()) {
    EXPECT_TRUE(std::ranges::any_of(Configurations(), [&](const Configuration& tested) {
      return tested.optimizer.index() == optimizer.index();
    })) << Name(optimizer);
  }
}

// After thousands of steps the corrections are one.
TEST_P(KernelsSuite, AdamWLate) {
  const Input start = Normal({100}, 0, 1, DType::kF32), gradient = Normal({100});
  const Input m_start = Normal({100}, 0, 1, DType::kF32);
  Input v_start = Normal({100});
  for (double& v : v_start.value) v = v * v + 0.1;
  v_start = Given(v_start, DType::kF32);
  Result parameter(start);
  std::array<Result, kMostOptimizerStates> moments = {Result(m_start), Result(v_start)};
  const OptimizerStep step = {.learning_rate = 0.1f, .weight_decay = 0.1f, .number = 1000000};
  reference::UpdateParameter(AdamW(), step, gradient, parameter, moments);
  kernels().UpdateParameters(AdamW(), step,
                             {{.gradient = gradient.tensor,
                               .parameter = start.tensor,
                               .states = {m_start.tensor, v_start.tensor}}});
  EXPECT_TRUE(Agrees(parameter, start.tensor, kRoundings));
}

// More tensors than a device takes at a time, of sizes that begin and end anywhere.
TEST_P(KernelsSuite, OptimizersOfManyTensors) {
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < 1000; ++i) sizes.push_back(i * 7 % 41);
  sizes[0] = sizes[383] = 9001;
  sizes[500] = 2048;
  for (const OptimizerRule& optimizer : AllOptimizers()) {
    SCOPED_TRACE(Name(optimizer));
    std::vector<Optimized> all = MakeOptimized(sizes, optimizer);
    TakeStep(optimizer, {.learning_rate = 0.1f, .weight_decay = 0.1f, .gradient_factor = 0.5f},
             all);
    EXPECT_TRUE(Agrees(all, kRoundings));
  }
}

// FSDP gives each rank a slice of the parameters: an element gets the same bits in any slice.
TEST_P(KernelsSuite, CutsOfOptimizersDoNotShow) {
  const std::vector<Input> inputs = {Normal({2000}), Normal({2000})};
  for (const auto& [optimizer, first_step] : Configurations()) {
    SCOPED_TRACE(Name(optimizer));
    OptimizerStep step = first_step;
    step.gradient_factor = 0.3f;
    step.number = 3;
    EXPECT_TRUE(CutsDoNotShow(inputs, [&](const std::vector<Tensor>& in, const Tensor& copy) {
      Kernels::OptimizedTensor tensor = {
          .gradient = in[1], .parameter = Output(copy.shape(), DType::kF32), .copy = copy};
      kernels().Cast(in[0], tensor.parameter);
      for (size_t s = 0; s < StateNames(optimizer).size(); ++s) {
        tensor.states[s] = Output(copy.shape(), DType::kF32);
        kernels().Fill(tensor.states[s], 0.1f + 0.1f * static_cast<float>(s));
      }
      kernels().UpdateParameters(optimizer, step, {tensor});
    }));
  }
}

// A step of a thousandth of the parameter's last bit in 16 bits: a thousand of them arrive.
TEST_P(KernelsSuite16, SmallStepsAddUpInTheMaster) {
  constexpr int kCount = 1000;
  const float step = static_cast<float>(UnitRoundoff(dtype()) * 2 / kCount);
  Tensor master = Output({1}, DType::kF32), copy = Output({1}), gradient = Output({1});
  kernels().Fill(master, 1);
  kernels().Fill(gradient, -1);
  for (int i = 0; i < kCount; ++i) {
    kernels().UpdateParameters(Sgd(), {.learning_rate = step},
                               {{.gradient = gradient, .parameter = master, .copy = copy}});
  }
  EXPECT_EQ(Download(copy)[0], 1 + 2 * UnitRoundoff(dtype()));
}

}  // namespace
}  // namespace lockstep
