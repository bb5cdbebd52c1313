#pragma once

#include <cstdint>

#include "core/nn/model.h"

namespace lockstep {

// Deep residual networks (He et al., 2015), as torchvision has them: stride in the 3x3 convolution
// of a bottleneck ("v1.5"), a 1x1 convolution with batch normalisation where a block changes shape.
struct ResNetOptions {
  enum class Stem {
    kCifar,     // 3x3, stride 1: for 32x32 images
    kImageNet,  // 7x7, stride 2, then 3x3 max pooling, stride 2
  };

  int depth = 18;  // 18, 34 or 50
  Stem stem = Stem::kCifar;
  int64_t classes = 10;
  int64_t width = 64;  // channels of the stem and the first stage; each further stage doubles them
  int64_t image = 32;  // height and width of the input images; for counting work
};

// Input [batch, height, width, 3], logits [batch, classes]. Blocks: stem, one for each residual
// block ("layer1.0", ...), head. ResNet-18 / 34 / 50 with 1000 classes have 11,689,512 / 21,797,672
// / 25,557,032 parameters.
Model MakeResNet(const ResNetOptions& options);

}  // namespace lockstep
