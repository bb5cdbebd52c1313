// Rotary positions.

#include <algorithm>
#include <cstring>

#include "core/base/parallel.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/float_elements.h"
#include "core/kernels/cpu/span.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements below which a fork does not pay

}  // namespace

void CpuKernels::Rotate(const Rotation& rotation, const Tensor& x, const Tensor& positions,
                        const Tensor& table, const Tensor& y) {
  Span span(this, {x, positions, table}, {y});
  const int64_t width = x.shape()[-1], head_width = rotation.head_width, half = head_width / 2,
                turned = rotation.heads * head_width, longest = table.shape()[0];
  CHECK(head_width % 2 == 0 && turned <= width && table.shape()[1] == head_width)
      << rotation.heads << " heads of " << head_width << " in rows of " << width;
  CHECK_EQ(positions.elements(), x.shape().rows());
  const float sign = rotation.direction == Rotation::Direction::kForward ? 1.0f : -1.0f;
  const bool in_place = y.raw() == x.raw();
  ParallelFor(
      positions.elements(), std::max<int64_t>(1, kGrain / width), [&](int64_t begin, int64_t end) {
        cpu::FloatInput input(x, head_width);
        cpu::FloatOutput output(y, head_width);
        for (int64_t row = begin; row < end; ++row) {
          const int64_t position = positions.data<int32_t>()[row];
          CHECK(position >= 0 && position < longest) << "a table of " << longest << " positions";
          const float* cosines = table.data<float>() + position * head_width;
          const float* sines = cosines + half;
          for (int64_t head = 0; head < rotation.heads; ++head) {
            const int64_t at = row * width + head * head_width;
            const float* in = input.Load(at, head_width);
            float* out = output.Open(at, head_width);
#pragma omp simd
            for (int64_t i = 0; i < half; ++i) {
              const float a = in[i], b = in[i + half], sine = sign * sines[i];
              out[i] = a * cosines[i] - b * sine;
              out[i + half] = b * cosines[i] + a * sine;
            }
            output.Close();
          }
          if (in_place || turned == width) continue;
          const int64_t size = SizeOf(x.dtype()), rest = (row * width + turned) * size;
          std::memcpy(y.raw() + rest, x.raw() + rest, (width - turned) * size);
        }
      });
}

}  // namespace lockstep
