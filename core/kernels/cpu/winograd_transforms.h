// The transforms of Winograd's convolution F(4x4, 3x3) (Lavin and Gray, 2016), for 16 channels at a
// time. With a tile's 6x6 pixels d, a window's weights g and 4x4 outputs y,
//
//   y = A^T ((G g G^T) * (B^T d B)) A        dg = G^T ((B^T d B) * (A dy A^T)) G
//
// where * multiplies element by element: 36 multiplications in place of 144.
//
// The matrices interpolate at 0, a, -a, b, -b and infinity. With a = 5/8 and b = 3/2 rounding
// errors are a few times smaller than with 1 and 2 (Barabasz et al., "Error Analysis and Improving
// the Accuracy of Winograd Convolution for Deep Neural Networks", 2020; oneDNN's choice as well).
// Each lane is one channel by itself: the bits are the same at any vector width.

#pragma once

#include <cmath>
#include <cstdint>

namespace lockstep::cpu::winograd {

inline constexpr int kLanes = 16;
inline constexpr int kTile = 4;     // outputs of a tile, on a side
inline constexpr int kPatch = 6;    // inputs of a tile, on a side
inline constexpr int kPoints = 36;  // products of a tile

// Planes of the 36 points lie one cache line further apart than their size, so that what is written
// to all of them does not meet in one set of the first-level cache.
inline constexpr int64_t kGap = 16;
inline constexpr int kWindow = 3;

inline constexpr float kA = 0.625f, kA2 = kA * kA, kA3 = kA2 * kA;
inline constexpr float kB = 1.5f, kB2 = kB * kB, kB3 = kB2 * kB;
// The rows of G are divided by these: the products of a point's distances to all others.
inline constexpr float kNorm0 = 1 / (kA2 * kB2);
inline constexpr float kNormA = 1 / (2 * kA2 * (kA2 - kB2));
inline constexpr float kNormB = 1 / (2 * kB2 * (kB2 - kA2));

// One-dimensional transforms of kIn elements to kOut, `from` and `to` apart, for kLanes lanes.

struct InputTransform {  // B^T d
  static constexpr int kIn = kPatch, kOut = kPatch;
  static void Run(const float* d, int64_t from, float* v, int64_t to) {
#pragma omp simd
    for (int l = 0; l < kLanes; ++l) {
      const float d0 = d[l], d1 = d[from + l], d2 = d[2 * from + l], d3 = d[3 * from + l],
                  d4 = d[4 * from + l], d5 = d[5 * from + l];
      const float even_a = std::fma(-kB2, d2, d4), odd_a = kA * std::fma(-kB2, d1, d3);
      const float even_b = std::fma(-kA2, d2, d4), odd_b = kB * std::fma(-kA2, d1, d3);
      v[l] = std::fma(kA2 * kB2, d0, std::fma(-(kA2 + kB2), d2, d4));
      v[to + l] = even_a + odd_a;
      v[2 * to + l] = even_a - odd_a;
      v[3 * to + l] = even_b + odd_b;
      v[4 * to + l] = even_b - odd_b;
      v[5 * to + l] = std::fma(kA2 * kB2, d1, std::fma(-(kA2 + kB2), d3, d5));
    }
  }
};

struct OutputTransform {  // A^T m
  static constexpr int kIn = kPatch, kOut = kTile;
  static void Run(const float* m, int64_t from, float* y, int64_t to) {
#pragma omp simd
    for (int l = 0; l < kLanes; ++l) {
      const float m0 = m[l], m1 = m[from + l], m2 = m[2 * from + l], m3 = m[3 * from + l],
                  m4 = m[4 * from + l], m5 = m[5 * from + l];
      const float even_a = m1 + m2, odd_a = m1 - m2, even_b = m3 + m4, odd_b = m3 - m4;
      y[l] = m0 + (even_a + even_b);
      y[to + l] = std::fma(kB, odd_b, kA * odd_a);
      y[2 * to + l] = std::fma(kB2, even_b, kA2 * even_a);
      y[3 * to + l] = std::fma(kB3, odd_b, std::fma(kA3, odd_a, m5));
    }
  }
};

struct OutputGradientTransform {  // A dy
  static constexpr int kIn = kTile, kOut = kPatch;
  static void Run(const float* d, int64_t from, float* v, int64_t to) {
#pragma omp simd
    for (int l = 0; l < kLanes; ++l) {
      const float d0 = d[l], d1 = d[from + l], d2 = d[2 * from + l], d3 = d[3 * from + l];
      const float even_a = std::fma(kA2, d2, d0), odd_a = kA * std::fma(kA2, d3, d1);
      const float even_b = std::fma(kB2, d2, d0), odd_b = kB * std::fma(kB2, d3, d1);
      v[l] = d0;
      v[to + l] = even_a + odd_a;
      v[2 * to + l] = even_a - odd_a;
      v[3 * to + l] = even_b + odd_b;
      v[4 * to + l] = even_b - odd_b;
      v[5 * to + l] = d3;
    }
  }
};

struct WeightTransform {  // G g
  static constexpr int kIn = kWindow, kOut = kPatch;
  static void Run(const float* g, int64_t from, float* u, int64_t to) {
#pragma omp simd
    for (int l = 0; l < kLanes; ++l) {
      const float g0 = g[l], g1 = g[from + l], g2 = g[2 * from + l];
      const float even_a = kNormA * std::fma(kA2, g2, g0), odd_a = (kNormA * kA) * g1;
      const float even_b = kNormB * std::fma(kB2, g2, g0), odd_b = (kNormB * kB) * g1;
      u[l] = kNorm0 * g0;
      u[to + l] = even_a + odd_a;
      u[2 * to + l] = even_a - odd_a;
      u[3 * to + l] = even_b + odd_b;
      u[4 * to + l] = even_b - odd_b;
      u[5 * to + l] = g2;
    }
  }
};

struct WeightGradientTransform {  // G^T u
  static constexpr int kIn = kPatch, kOut = kWindow;
  static void Run(const float* u, int64_t from, float* g, int64_t to) {
#pragma omp simd
    for (int l = 0; l < kLanes; ++l) {
      const float u0 = u[l], u1 = u[from + l], u2 = u[2 * from + l], u3 = u[3 * from + l],
                  u4 = u[4 * from + l], u5 = u[5 * from + l];
      const float even_a = kNormA * (u1 + u2), odd_a = u1 - u2;
      const float even_b = kNormB * (u3 + u4), odd_b = u3 - u4;
      g[l] = std::fma(kNorm0, u0, even_a + even_b);
      g[to + l] = std::fma(kNormB * kB, odd_b, (kNormA * kA) * odd_a);
      g[2 * to + l] = std::fma(kB2, even_b, std::fma(kA2, even_a, u5));
    }
  }
};

// Both dimensions: element (i, j) of the input lies at in + i * row + j * column, that of the
// result goes to out + (i * kOut + j) * plane.
template <typename Transform>
inline void Transform2d(const float* in, int64_t row, int64_t column, float* out, int64_t plane) {
  constexpr int kIn = Transform::kIn, kOut = Transform::kOut;
  alignas(64) float half[kOut * kIn * kLanes];
  for (int j = 0; j < kIn; ++j) {
    Transform::Run(in + j * column, row, half + j * kLanes, kIn * kLanes);
  }
  for (int i = 0; i < kOut; ++i) {
    Transform::Run(half + i * kIn * kLanes, kLanes, out + i * kOut * plane, plane);
  }
}

// The 4x4 outputs of a tile, y = A^T m A + bias: pixel (i, j) goes to out + i * row + j * column.
// The bias of the 16 channels may be null.
inline void OutputTile(const float* m, int64_t plane, const float* bias, float* out, int64_t row,
                       int64_t column) {
  alignas(64) float half[kTile * kPatch * kLanes];
  for (int j = 0; j < kPatch; ++j) {
    OutputTransform::Run(m + j * plane, kPatch * plane, half + j * kLanes, kPatch * kLanes);
  }
  for (int i = 0; i < kTile; ++i) {
    float* pixels = out + i * row;
    OutputTransform::Run(half + i * kPatch * kLanes, kLanes, pixels, column);
    for (int j = 0; bias != nullptr && j < kTile; ++j) {
      for (int l = 0; l < kLanes; ++l) pixels[j * column + l] += bias[l];
    }
  }
}

}  // namespace lockstep::cpu::winograd
