// CUDA's vectors of numbers, aligned as its guide says.

#pragma once

#include <cstdint>

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

struct uint3 {
  uint32_t x, y, z;
};
struct dim3 {
  uint32_t x, y, z;
  constexpr dim3(uint32_t x_extent = 1, uint32_t y_extent = 1, uint32_t z_extent = 1)
      : x(x_extent), y(y_extent), z(z_extent) {}
};
