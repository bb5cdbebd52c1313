#include "core/kernels/cpu/float_elements.h"

#include "core/base/half.h"
#include "core/base/parallel.h"  // SkipsLoops
#include "glog/logging.h"

namespace lockstep::cpu {
namespace {

uint16_t* Bits(const Tensor& tensor) { return reinterpret_cast<uint16_t*>(tensor.raw()); }

}  // namespace

void LoadFloats(const Tensor& from, int64_t first, int64_t count, float* to) {
  const uint16_t* bits = Bits(from) + first;
  switch (from.dtype()) {
    case DType::kF32:
      std::copy_n(from.data<float>() + first, count, to);
      return;
    case DType::kF16:
      for (int64_t i = 0; i < count; ++i) to[i] = HalfToFloat(bits[i]);
      return;
    case DType::kBF16:
      for (int64_t i = 0; i < count; ++i) to[i] = BFloat16ToFloat(bits[i]);
      return;
    default:
      LOG(FATAL) << Name(from.dtype()) << " is no type to train in";
  }
}

void StoreFloats(const float* from, int64_t first, int64_t count, const Tensor& to) {
  uint16_t* bits = Bits(to) + first;
  switch (to.dtype()) {
    case DType::kF32:
      std::copy_n(from, count, to.data<float>() + first);
      return;
    case DType::kF16:
      for (int64_t i = 0; i < count; ++i) bits[i] = FloatToHalf(from[i]);
      return;
    case DType::kBF16:
      for (int64_t i = 0; i < count; ++i) bits[i] = FloatToBFloat16(from[i]);
      return;
    default:
      LOG(FATAL) << Name(to.dtype()) << " is no type to train in";
  }
}

void RoundFloats(DType dtype, int64_t count, float* x) {
  switch (dtype) {
    case DType::kF32:
      return;
    case DType::kF16:
      for (int64_t i = 0; i < count; ++i) x[i] = HalfToFloat(FloatToHalf(x[i]));
      return;
    case DType::kBF16:
      for (int64_t i = 0; i < count; ++i) x[i] = BFloat16ToFloat(FloatToBFloat16(x[i]));
      return;
    default:
      LOG(FATAL) << Name(dtype) << " is no type to train in";
  }
}

void WriteSums(const float* sums, Write write, const Tensor& to) {
  if (!to.defined() || SkipsLoops()) return;  // no page is touched for sums of nothing
  FloatOutput output(to, to.elements());
  if (write == Write::kOverwrite) {
    std::copy_n(sums, to.elements(), output.Open(0, to.elements()));
  } else {
    float* out = output.OpenSums(write, 0, to.elements());
    for (int64_t i = 0; i < to.elements(); ++i) out[i] += sums[i];
  }
  output.Close();
}

}  // namespace lockstep::cpu
