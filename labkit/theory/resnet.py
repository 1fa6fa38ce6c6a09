"""A residual network as arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from labkit.theory.cifar10 import CHANNELS, SIDE
from labkit.theory.shapes import Model, Shape

FLOAT_BYTES, INTEGER_BYTES = 4, 8


class Convolution(NamedTuple):
    """A square convolution, each followed by batch normalisation: channels in and out, side of kernel and of output."""

    inputs: int
    outputs: int
    kernel: int
    side: int


def convolutions(width: int, blocks: Sequence[int]) -> Iterator[Convolution]:
    """Yield every convolution in the order in which the model registers it.

    A 3×3 stem without pooling, then groups of blocks of two 3×3 convolutions; each group but the first halves the image
    and doubles the channels, and its first block has a 1×1 shortcut (He and others, 2016: the stem of section 4.2, the
    shortcut of equation 2, option B).
    """
    yield Convolution(CHANNELS, width, 3, SIDE)
    inputs, side = width, SIDE
    for group, count in enumerate(blocks):
        outputs = width * 2**group
        for number in range(count):
            halves = group > 0 and number == 0
            side = -(-side // 2) if halves else side
            yield Convolution(inputs, outputs, 3, side)
            yield Convolution(outputs, outputs, 3, side)
            if halves:
                yield Convolution(inputs, outputs, 1, side)
            inputs = outputs


def kept_numbers(width: int, blocks: Sequence[int]) -> int:
    """Return how many numbers an image's forward keeps for its backward.

    The image, every convolution's output, which its normalisation reads again, and every ReLU's, which stands after
    each convolution but the shortcuts. What a normalisation gives, a ReLU's backward does not need.
    """
    layers = list(convolutions(width, blocks))
    outputs = (layer.outputs * layer.side**2 * (1 if layer.kernel == 1 else 2) for layer in layers)
    return CHANNELS * SIDE**2 + sum(outputs)


def resnet(width: int, blocks: Sequence[int], classes: int) -> Model:
    """Return the network as shapes; `buffers_bytes` are the running statistics of every normalisation.

    A normalisation has two float32 numbers per channel (mean and variance) and one integer of 8 bytes (its count).
    """
    shapes: list[Shape] = []
    buffers_bytes = 0
    for convolution in convolutions(width, blocks):
        shapes += [
            (convolution.outputs, convolution.inputs, convolution.kernel, convolution.kernel),
            (convolution.outputs,),
            (convolution.outputs,),
        ]
        buffers_bytes += 2 * FLOAT_BYTES * convolution.outputs + INTEGER_BYTES
    return Model(tuple(shapes), (), ((classes, width * 2 ** (len(blocks) - 1)), (classes,)), 0, buffers_bytes)
