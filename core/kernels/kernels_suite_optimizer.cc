// Optimizers over several steps.

#include <limits>

#include "core/kernels/kernels_suite.h"

namespace lockstep {
namespace {

using reference::Result;

constexpr int64_t kSizes[] = {1, 3, 17, 0, 63, 65, 100, 50001};
constexpr int kSteps = 5;

// A dozen operations a step, whose errors the state carries on.
constexpr double kRoundings = 12 * kSteps;

// What `options` are for one of the tensors.
template <typename Options>
Options For(const Kernels::OptimizedTensor& tensor, Options options) {
  if (!tensor.decays) options.weight_decay = 0;
  return options;
}

}  // namespace

std::vector<KernelsSuite::Optimized> KernelsSuite::MakeOptimized(absl::Span<const int64_t> sizes,
                                                                 size_t states) {
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

std::vector<Kernels::OptimizedTensor> KernelsSuite::NextGradients(std::vector<Optimized>& all) {
  std::vector<Kernels::OptimizedTensor> tensors;
  for (Optimized& one : all) {
    one.gradient = Normal(one.parameter.shape, 0, 1, one.tensor.gradient.dtype());
    one.tensor.gradient = one.gradient.tensor;
    tensors.push_back(one.tensor);
  }
  return tensors;
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

TEST_P(KernelsSuite, AdamW) {
  const AdamW configurations[] = {
      {.learning_rate = 1e-2f},
      {.learning_rate = 0.3f, .beta1 = 0.5f, .beta2 = 0.7f, .epsilon = 0.5f, .weight_decay = 0.2f},
      {.learning_rate = 0.1f, .beta1 = 0.0f, .beta2 = 0.99f, .weight_decay = 0.01f},
  };
  for (AdamW options : configurations) {
    std::vector<Optimized> all = MakeOptimized(kSizes, 2);
    for (options.step = 1; options.step <= kSteps; ++options.step) {
      SCOPED_TRACE(testing::Message() << "step " << options.step);
      const std::vector<Kernels::OptimizedTensor> tensors = NextGradients(all);
      const float factor = options.step % 2 == 0 ? 0.25f : 1.0f;  // as clipping gives it
      kernels().AdamWStep(options, factor, tensors);
      for (Optimized& one : all) {
        reference::AdamWStep(For(one.tensor, options), factor, one.gradient, one.parameter,
                             one.states[0], one.states[1]);
      }
      EXPECT_TRUE(Agrees(all, kRoundings));
    }
  }
}

// After thousands of steps the corrections are one.
TEST_P(KernelsSuite, AdamWLate) {
  const Input start = Normal({100}, 0, 1, DType::kF32), gradient = Normal({100});
  const Input m_start = Normal({100}, 0, 1, DType::kF32);
  Input v_start = Normal({100});
  for (double& v : v_start.value) v = v * v + 0.1;
  v_start = Given(v_start, DType::kF32);
  Result parameter(start), first_moment(m_start), second_moment(v_start);
  const AdamW options = {.learning_rate = 0.1f, .weight_decay = 0.1f, .step = 1000000};
  reference::AdamWStep(options, 1, gradient, parameter, first_moment, second_moment);
  kernels().AdamWStep(options, 1,
                      {{.gradient = gradient.tensor,
                        .parameter = start.tensor,
                        .states = {m_start.tensor, v_start.tensor}}});
  EXPECT_TRUE(Agrees(parameter, start.tensor, kRoundings));
}

TEST_P(KernelsSuite, Sgd) {
  const Sgd configurations[] = {
      {.learning_rate = 0.3f},
      {.learning_rate = 0.3f, .weight_decay = 0.2f},
      {.learning_rate = 0.1f, .momentum = 0.9f},
      {.learning_rate = 0.1f, .momentum = 0.7f, .weight_decay = 0.1f, .nesterov = true},
  };
  for (const Sgd& options : configurations) {
    std::vector<Optimized> all = MakeOptimized(kSizes, options.momentum == 0 ? 0 : 1);
    for (int step = 1; step <= kSteps; ++step) {
      SCOPED_TRACE(testing::Message() << "momentum " << options.momentum << ", step " << step);
      const std::vector<Kernels::OptimizedTensor> tensors = NextGradients(all);
      const float factor = step % 2 == 0 ? 0.25f : 1.0f;
      kernels().SgdStep(options, factor, tensors);
      for (Optimized& one : all) {
        reference::SgdStep(For(one.tensor, options), factor, one.gradient, one.parameter,
                           one.states[0]);
      }
      EXPECT_TRUE(Agrees(all, kRoundings));
    }
  }
}

// More tensors than a device takes at a time, of sizes that begin and end anywhere.
TEST_P(KernelsSuite, OptimizersOfManyTensors) {
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < 1000; ++i) sizes.push_back(i * 7 % 41);
  sizes[0] = sizes[383] = 9001;
  sizes[500] = 2048;
  std::vector<Optimized> all = MakeOptimized(sizes, 2);
  const AdamW adamw = {.learning_rate = 0.1f, .weight_decay = 0.1f};
  kernels().AdamWStep(adamw, 0.5f, NextGradients(all));
  for (Optimized& one : all) {
    reference::AdamWStep(For(one.tensor, adamw), 0.5f, one.gradient, one.parameter, one.states[0],
                         one.states[1]);
  }
  EXPECT_TRUE(Agrees(all, kRoundings));
  const Sgd sgd = {.learning_rate = 0.1f, .weight_decay = 0.1f};
  kernels().SgdStep(sgd, 0.5f, NextGradients(all));
  for (Optimized& one : all) {
    reference::SgdStep(For(one.tensor, sgd), 0.5f, one.gradient, one.parameter, one.states[0]);
  }
  EXPECT_TRUE(Agrees(all, 2 * kRoundings));
}

// FSDP gives each rank a slice of the parameters: an element gets the same bits in any slice.
TEST_P(KernelsSuite, CutsOfOptimizersDoNotShow) {
  const std::vector<Input> inputs = {Normal({2000}), Normal({2000})};
  const auto state = [&](const Tensor& like, float value) {
    Tensor result = Output(like.shape(), DType::kF32);
    kernels().Fill(result, value);
    return result;
  };
  EXPECT_TRUE(CutsDoNotShow(inputs, [&](const std::vector<Tensor>& in, const Tensor& copy) {
    const Tensor parameter = state(copy, 0), m = state(copy, 0.1f), v = state(copy, 0.2f);
    kernels().Cast(in[0], parameter);
    kernels().AdamWStep(
        {.weight_decay = 0.1f, .step = 3}, 0.3f,
        {{.gradient = in[1], .parameter = parameter, .copy = copy, .states = {m, v}}});
  }));
  EXPECT_TRUE(CutsDoNotShow(inputs, [&](const std::vector<Tensor>& in, const Tensor& copy) {
    const Tensor parameter = state(copy, 0), buffer = state(copy, 0.1f);
    kernels().Cast(in[0], parameter);
    kernels().SgdStep(
        {.momentum = 0.9f, .weight_decay = 0.1f, .nesterov = true}, 0.3f,
        {{.gradient = in[1], .parameter = parameter, .copy = copy, .states = {buffer}}});
  }));
}

// A step of a thousandth of the parameter's last bit in 16 bits: a thousand of them arrive.
TEST_P(KernelsSuite16, SmallStepsAddUpInTheMaster) {
  constexpr int kCount = 1000;
  const float step = static_cast<float>(UnitRoundoff(dtype()) * 2 / kCount);
  Tensor master = Output({1}, DType::kF32), copy = Output({1}), gradient = Output({1});
  kernels().Fill(master, 1);
  kernels().Fill(gradient, -1);
  for (int i = 0; i < kCount; ++i) {
    kernels().SgdStep({.learning_rate = step}, 1,
                      {{.gradient = gradient, .parameter = master, .copy = copy}});
  }
  EXPECT_EQ(Download(copy)[0], 1 + 2 * UnitRoundoff(dtype()));
}

}  // namespace
}  // namespace lockstep
