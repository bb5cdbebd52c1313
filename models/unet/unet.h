#pragma once

#include <cstdint>

#include "core/nn/model.h"

namespace lockstep {

// A U-Net (Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation",
// 2015) that keeps the size of the image: convolutions are padded and batch-normalised, and the way
// up doubles pixels where the paper has transposed convolutions, which leave checkered patterns
// (Odena et al., "Deconvolution and Checkerboard Artifacts", 2016).
struct UNetOptions {
  int64_t levels = 3;   // how often the image is halved
  int64_t width = 16;   // channels of the first level; each further one doubles them
  int64_t classes = 2;  // of a pixel
  int64_t image = 32;   // height and width of the input images, a multiple of 2^levels
};

// Input [batch, image, image, 3], logits [batch, image, image, classes]. Blocks:
//
//   down0 -> down1 -> ... -> bottom -> ... -> up1 -> up0 -> head
//     |        '-- skip "level1/detail" --------^     ^
//     '----------- skip "level0/detail" --------------'
//
// A block down<i> has two 3x3 convolutions of width 2^i channels, whose result it stashes and hands
// on halved by max pooling; `bottom` is the same at the smallest size, without either. A block
// up<i> doubles what comes from below, puts the popped detail beside it and has two convolutions
// again. The head is a linear layer for each pixel (a 1x1 convolution).
//
// Requires levels >= 1 and an image that can be halved so often.
Model MakeUNet(const UNetOptions& options);

}  // namespace lockstep
