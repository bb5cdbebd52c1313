// Optimizers over several steps.

#include <limits>

#include "core/kernels/kernels_suite.h"

namespace lockstep {
namespace {

using reference::Result;

constexpr int64_t kSizes[] = {1, 3, 17, 63, 65, 100, 50001};
constexpr int kSteps = 5;

// A dozen operations a step, whose errors the state carries on.
constexpr double kRoundings = 12 * kSteps;

TEST_P(KernelsSuite, AdamW) {
  const AdamW configurations[] = {
      {.learning_rate = 1e-2f},
      {.learning_rate = 0.3f, .beta1 = 0.5f, .beta2 = 0.7f, .epsilon = 0.5f, .weight_decay = 0.2f},
      {.learning_rate = 0.1f, .beta1 = 0.0f, .beta2 = 0.99f, .weight_decay = 0.01f},
  };
  for (AdamW options : configurations) {
    for (int64_t n : kSizes) {
      const Input start = Normal({n}, 0, 1, DType::kF32);
      Result parameter(start), first_moment(start.shape), second_moment(start.shape);
      Tensor p = start.tensor, m = Output({n}, DType::kF32), v = Output({n}, DType::kF32);
      Tensor copy = Output({n});
      kernels().Fill(m, 0);
      kernels().Fill(v, 0);
      for (options.step = 1; options.step <= kSteps; ++options.step) {
        SCOPED_TRACE(testing::Message() << n << " elements, step " << options.step);
        const Input gradient = Normal({n});
        const float factor = options.step % 2 == 0 ? 0.25f : 1.0f;  // as clipping gives it
        reference::AdamWStep(options, factor, gradient, parameter, first_moment, second_moment);
        // The copy is only written, so that it may come and go.
        kernels().AdamWStep(options, factor, gradient.tensor, p, m, v,
                            options.step == 2 ? Tensor() : copy);
        EXPECT_TRUE(Agrees(first_moment, m, kRoundings));
        EXPECT_TRUE(Agrees(second_moment, v, kRoundings));
        EXPECT_TRUE(Agrees(parameter, p, kRoundings));
        if (options.step != 2) {
          EXPECT_TRUE(SameBits(copy, Given(Downloaded(p)).tensor));
        }
      }
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
  Tensor p = start.tensor, m = m_start.tensor, v = v_start.tensor;
  const AdamW options = {.learning_rate = 0.1f, .weight_decay = 0.1f, .step = 1000000};
  reference::AdamWStep(options, 1, gradient, parameter, first_moment, second_moment);
  kernels().AdamWStep(options, 1, gradient.tensor, p, m, v, Tensor());
  EXPECT_TRUE(Agrees(parameter, p, kRoundings));
}

TEST_P(KernelsSuite, Sgd) {
  const Sgd configurations[] = {
      {.learning_rate = 0.3f},
      {.learning_rate = 0.3f, .weight_decay = 0.2f},
      {.learning_rate = 0.1f, .momentum = 0.9f},
      {.learning_rate = 0.1f, .momentum = 0.7f, .weight_decay = 0.1f, .nesterov = true},
  };
  for (const Sgd& options : configurations) {
    for (int64_t n : kSizes) {
      const Input start = Normal({n}, 0, 1, DType::kF32);
      Result parameter(start), momentum(start.shape);
      Tensor p = start.tensor, copy = Output({n}), buffer;
      if (options.momentum != 0) {
        buffer = Output({n}, DType::kF32);
        kernels().Fill(buffer, 0);
      }
      for (int step = 1; step <= kSteps; ++step) {
        SCOPED_TRACE(testing::Message()
                     << n << " elements, momentum " << options.momentum << ", step " << step);
        const Input gradient = Normal({n});
        const float factor = step % 2 == 0 ? 0.25f : 1.0f;
        reference::SgdStep(options, factor, gradient, parameter, momentum);
        kernels().SgdStep(options, factor, gradient.tensor, p, buffer, step == 2 ? Tensor() : copy);
        EXPECT_TRUE(Agrees(parameter, p, kRoundings));
        if (step != 2) {
          EXPECT_TRUE(SameBits(copy, Given(Downloaded(p)).tensor));
        }
        if (buffer.defined()) {
          EXPECT_TRUE(Agrees(momentum, buffer, kRoundings));
        }
      }
    }
  }
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
    kernels().AdamWStep({.weight_decay = 0.1f, .step = 3}, 0.3f, in[1], parameter, m, v, copy);
  }));
  EXPECT_TRUE(CutsDoNotShow(inputs, [&](const std::vector<Tensor>& in, const Tensor& copy) {
    const Tensor parameter = state(copy, 0), buffer = state(copy, 0.1f);
    kernels().Cast(in[0], parameter);
    kernels().SgdStep({.momentum = 0.9f, .weight_decay = 0.1f, .nesterov = true}, 0.3f, in[1],
                      parameter, buffer, copy);
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
    kernels().SgdStep({.learning_rate = step}, 1, gradient, master, Tensor(), copy);
  }
  EXPECT_EQ(Download(copy)[0], 1 + 2 * UnitRoundoff(dtype()));
}

}  // namespace
}  // namespace lockstep
