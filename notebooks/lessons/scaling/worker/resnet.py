"""ResNet-18 for small images: a 3×3 stem, eight residual blocks, one linear layer (He and others, 2016)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from labkit.theory.cifar10 import CHANNELS


class Block(nn.Module):
    """Two 3×3 convolutions beside a shortcut, which is a 1×1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(outputs))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        within = functional.relu(self.norm1(self.conv1(images)))
        return functional.relu(self.norm2(self.conv2(within)) + self.shortcut(images))


class ResNet(nn.Module):
    """The whole network: images to logits in float32.

    `precision` is "float32", "tf32" or "autocast" (bfloat16 products over float32 weights).
    """

    def __init__(self, width: int, blocks: Sequence[int], classes: int, precision: str = "float32"):
        super().__init__()
        self.precision = precision
        self.conv1 = nn.Conv2d(CHANNELS, width, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        layers: list[nn.Module] = []
        inputs = width
        for group, count in enumerate(blocks):
            outputs = width * 2**group
            for number in range(count):
                layers.append(Block(inputs, outputs, 2 if group and not number else 1))
                inputs = outputs
        self.blocks = nn.Sequential(*layers)
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.precision == "autocast"):
            within = self.blocks(functional.relu(self.norm1(self.conv1(images))))
            logits = self.classifier(within.mean((2, 3)))
        return logits.float()
