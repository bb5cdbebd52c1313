// Strips of tiles: the tiles side by side that make four rows of an image. Winograd's convolutions
// load and store whole strips, which lie in memory without gaps.

#pragma once

#include <algorithm>
#include <cstdint>

#include "core/kernels/cpu/float_elements.h"
#include "core/kernels/cpu/winograd_transforms.h"
#include "core/tensor/tensor.h"

namespace lockstep::cpu::winograd {

struct Strips {
  explicit Strips(const Tensor& images)
      : batch(images.shape()[0]),
        height(images.shape()[1]),
        width(images.shape()[2]),
        high((height + kTile - 1) / kTile),
        wide((width + kTile - 1) / kTile) {}

  int64_t count() const { return batch * high; }
  int64_t tiles_of_sample() const { return high * wide; }

  int64_t batch, height, width;
  int64_t high, wide;  // tiles of an image
};

// Pixels of a strip's row with the border that the patches of its tiles share, and without.
inline int64_t PatchPixels(const Strips& strips) { return strips.wide * kTile + 2; }
inline int64_t TilePixels(const Strips& strips) { return strips.wide * kTile; }

// to[rows, pixels, channels] = channels first .. first + channels of the image rows of a strip,
// beginning `border` rows and columns before it; zeros outside of the image.
inline void LoadStrip(const Tensor& images, const Strips& strips, int64_t strip, int64_t border,
                      int64_t rows, int64_t pixels, int64_t first, int64_t channels, float* to) {
  const int64_t all = images.shape()[3], sample = strip / strips.high;
  for (int64_t r = 0; r < rows; ++r, to += pixels * channels) {
    const int64_t line = strip % strips.high * kTile + r - border;
    if (line < 0 || line >= strips.height) {
      std::fill_n(to, pixels * channels, 0.0f);
      continue;
    }
    const int64_t from = (sample * strips.height + line) * strips.width * all + first;
    float* begin = to + border * channels;
    std::fill(to, begin, 0.0f);
    if (channels == all) {
      LoadFloats(images, from, strips.width * all, begin);
    } else {
      for (int64_t i = 0; i < strips.width; ++i) {
        LoadFloats(images, from + i * all, channels, begin + i * channels);
      }
    }
    std::fill(begin + strips.width * channels, to + pixels * channels, 0.0f);
  }
}

// Writes from[kTile, TilePixels, channels] to channels first .. first + channels of the image rows
// of a strip.
inline void StoreStrip(const float* from, const Strips& strips, int64_t strip, int64_t first,
                       int64_t channels, const Tensor& images) {
  const int64_t all = images.shape()[3], sample = strip / strips.high;
  const int64_t top = strip % strips.high * kTile;
  const int64_t rows = std::min<int64_t>(kTile, strips.height - top);
  for (int64_t r = 0; r < rows; ++r, from += TilePixels(strips) * channels) {
    const int64_t to = (sample * strips.height + top + r) * strips.width * all + first;
    if (channels == all) {
      StoreFloats(from, to, strips.width * all, images);
      continue;
    }
    for (int64_t i = 0; i < strips.width; ++i) {
      StoreFloats(from + i * channels, to + i * all, channels, images);
    }
  }
}

}  // namespace lockstep::cpu::winograd
