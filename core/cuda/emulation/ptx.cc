#include "core/cuda/emulation/ptx.h"

#include <cmath>
#include <cstring>

#include "core/cuda/emulation/threads.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace lockstep::emulation::ptx {
namespace {

constexpr int kLanes = 32;

float HalfOf(uint16_t bits) { return __half2float({bits}); }
float BFloat16Of(uint16_t bits) { return __bfloat162float({bits}); }

// Element `i`, 0 or 1, of a register of two.
uint16_t Part(uint32_t packed, int i) { return static_cast<uint16_t>(packed >> 16 * i); }

struct MmaOperands {
  uint32_t a[4], b[2];
  float d[4];  // c on the way in
};

// d[16, 8] = a[16, 16] b[16, 8] + c. Products are exact in fp32; tensor cores do not say in which
// order they add, which is here that of k.
template <float (*kValueOf)(uint16_t)>
void MultiplyWarp(void* const (&operands)[kLanes]) {
  float a[16][16], b[16][8];
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto& own = *static_cast<const MmaOperands*>(operands[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 2; ++i) {
      for (int part = 0; part < 4; ++part) {
        a[g + part % 2 * 8][2 * t + i + part / 2 * 8] = kValueOf(Part(own.a[part], i));
      }
      for (int part = 0; part < 2; ++part) {
        b[2 * t + i + part * 8][g] = kValueOf(Part(own.b[part], i));
      }
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    auto& own = *static_cast<MmaOperands*>(operands[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int e = 0; e < 4; ++e) {
      const int row = g + e / 2 * 8, column = 2 * t + e % 2;
      float sum = own.d[e];
      for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
      own.d[e] = sum;
    }
  }
}

template <float (*kValueOf)(uint16_t)>
void Multiply(float& d0, float& d1, float& d2, float& d3, MmaOperands operands) {
  TogetherAsWarp(&MultiplyWarp<kValueOf>, &operands);
  d0 = operands.d[0];
  d1 = operands.d[1];
  d2 = operands.d[2];
  d3 = operands.d[3];
}

struct LoadOperands {
  const unsigned char* row;
  uint32_t x[4];
};

// Element `column` of row `row` of matrix `matrix`.
uint16_t Element(void* const (&operands)[kLanes], int matrix, int row, int column) {
  const auto& lane = *static_cast<const LoadOperands*>(operands[8 * matrix + row]);
  uint16_t element;
  std::memcpy(&element, lane.row + 2 * column, sizeof(element));
  return element;
}

template <bool kTransposed>
void LoadWarp(void* const (&operands)[kLanes]) {
  for (int lane = 0; lane < kLanes; ++lane) {
    auto& own = *static_cast<LoadOperands*>(operands[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int matrix = 0; matrix < 4; ++matrix) {
      uint32_t packed = 0;
      for (int i = 0; i < 2; ++i) {
        const uint32_t element = kTransposed ? Element(operands, matrix, 2 * t + i, g)
                                             : Element(operands, matrix, g, 2 * t + i);
        packed |= element << 16 * i;
      }
      own.x[matrix] = packed;
    }
  }
}

template <bool kTransposed>
void LoadMatrices(uint32_t& x0, uint32_t& x1, uint32_t& x2, uint32_t& x3, uint32_t shared) {
  constexpr size_t kRowBytes = 16;
  LoadOperands operands = {.row = SharedAt(shared), .x = {}};
  CheckAccess(Access::kRead, operands.row, kRowBytes, kRowBytes);
  TogetherAsWarp(&LoadWarp<kTransposed>, &operands);
  x0 = operands.x[0];
  x1 = operands.x[1];
  x2 = operands.x[2];
  x3 = operands.x[3];
}

void BeginCopyOf(uint32_t shared, const void* from, int bytes, int bytes_read) {
  const auto size = static_cast<size_t>(bytes);
  CheckAccess(Access::kWrite, SharedAt(shared), size, size);
  if (bytes_read > 0) CheckAccess(Access::kRead, from, static_cast<size_t>(bytes_read), size);
  BeginCopy(shared, bytes_read > 0 ? from : nullptr, size);
}

}  // namespace

void mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(float& d0, float& d1, float& d2, float& d3,
                                                         uint32_t a0, uint32_t a1, uint32_t a2,
                                                         uint32_t a3, uint32_t b0, uint32_t b1,
                                                         float c0, float c1, float c2, float c3) {
  Multiply<BFloat16Of>(d0, d1, d2, d3, {{a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3}});
}

void mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(float& d0, float& d1, float& d2, float& d3,
                                                       uint32_t a0, uint32_t a1, uint32_t a2,
                                                       uint32_t a3, uint32_t b0, uint32_t b1,
                                                       float c0, float c1, float c2, float c3) {
  Multiply<HalfOf>(d0, d1, d2, d3, {{a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3}});
}

void ldmatrix_sync_aligned_m8n8_x4_shared_b16(uint32_t& x0, uint32_t& x1, uint32_t& x2,
                                              uint32_t& x3, uint32_t shared) {
  LoadMatrices<false>(x0, x1, x2, x3, shared);
}

void ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(uint32_t& x0, uint32_t& x1, uint32_t& x2,
                                                    uint32_t& x3, uint32_t shared) {
  LoadMatrices<true>(x0, x1, x2, x3, shared);
}

void cp_async_cg_shared_global(uint32_t shared, const void* from, int bytes, int bytes_read) {
  BeginCopyOf(shared, from, bytes, bytes_read);
}

void cp_async_ca_shared_global(uint32_t shared, const void* from, int bytes, int bytes_read) {
  BeginCopyOf(shared, from, bytes, bytes_read);
}

void cp_async_wait_all() { FinishCopies(); }

void ex2_approx_ftz_f32(float& result, float x) {
  constexpr float kLeastNormal = 0x1p-126f;
  const float power = std::exp2(x);
  result = power < kLeastNormal ? 0.0f : power;
}

void cvt_rn_bf16x2_f32(uint32_t& packed, float high, float low) {
  packed = uint32_t{__float2bfloat16_rn(high).bits} << 16 | __float2bfloat16_rn(low).bits;
}

void cvt_rn_f16x2_f32(uint32_t& packed, float high, float low) {
  packed = uint32_t{__float2half_rn(high).bits} << 16 | __float2half_rn(low).bits;
}

}  // namespace lockstep::emulation::ptx
