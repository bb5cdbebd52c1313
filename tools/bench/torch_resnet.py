"""The ResNets that PyTorch's side of the benchmarks trains (He et al., 2015), with strides in 3x3 convolutions.

Images below 64 pixels have the stem of the CIFAR networks: one 3x3 convolution and no pooling.
"""
import torch.nn as nn
import torch.nn.functional as F

STAGE_WIDTHS = (64, 128, 256, 512)
DEPTHS = {"resnet18": (2, 2, 2, 2), "resnet50": (3, 4, 6, 3)}


def convolution(inputs, outputs, kernel, stride=1):
    """A convolution without bias and its batch normalisation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)
    )


class Residual(nn.Module):
    """relu(path(x) + shortcut(x)). `wide` blocks have a bottleneck of a quarter of their outputs."""

    def __init__(self, inputs, width, stride, wide):
        super().__init__()
        outputs = 4 * width if wide else width
        if wide:
            kernels, widths, strides = (1, 3, 1), (width, width, outputs), (1, stride, 1)
        else:
            kernels, widths, strides = (3, 3), (width, width), (stride, 1)
        layers, last = [], inputs
        for kernel, out, step in zip(kernels, widths, strides):
            layers += [convolution(last, out, kernel, step), nn.ReLU(inplace=True)]
            last = out
        self.path = nn.Sequential(*layers[:-1])
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else convolution(inputs, outputs, 1, stride)

    def forward(self, x):
        return F.relu(self.path(x) + self.shortcut(x), inplace=True)


class ResNet(nn.Module):
    def __init__(self, name, image, classes):
        super().__init__()
        small, wide = image < 64, name == "resnet50"
        self.stem = nn.Sequential(convolution(3, 64, *((3, 1) if small else (7, 2))), nn.ReLU(inplace=True))
        if not small:
            self.stem.append(nn.MaxPool2d(3, 2, 1))
        blocks, last = [], 64
        for stage, (width, depth) in enumerate(zip(STAGE_WIDTHS, DEPTHS[name])):
            for block in range(depth):
                blocks.append(Residual(last, width, 2 if stage > 0 and block == 0 else 1, wide))
                last = 4 * width if wide else width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(last, classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))
