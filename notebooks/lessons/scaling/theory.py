"""Laws of scaling and schedules of learning rates, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.theory.resnet import convolutions, resnet
from labkit.theory.shapes import Model, configuration

RESNET = configuration("resnet18-cifar")
# Of the reference training, to which learning rates are scaled. At 0.1 the reference itself, without warm-up, stayed at
# chance for one to three of its first epochs, and the large batch in one seed of three for all of them.
BASE_BATCH, BASE_RATE = 128, 0.02
GUESSING = 10.0  # percent of ten classes that chance gets right
YOURS = "yours"
TRAININGS = {
    "reference": "the reference on one GPU",
    "one_gpu": "the same large batch on one GPU",
    "large": "the large batch on all GPUs",
    YOURS: "the same with your `shard`",
    "no_warm_up": "no warm-up",
    "unscaled": "an unscaled learning rate",
    "same_order": "no `set_epoch`",
    "sync_bn": "SyncBatchNorm",
}


def model(width: int = RESNET["width"], blocks: Sequence[int] = tuple(RESNET["blocks"])) -> Model:
    """Return the network of this lab as the shapes of its parameters; at other widths for small runs."""
    return resnet(width, blocks, RESNET["num_labels"])


def flop_per_image(width: int, blocks: Sequence[int], classes: int) -> int:
    """Return the FLOP of convolutions and classifier in one training step, per image.

    2 per multiplication and addition; backward does twice the forward's work, but for the stem, whose input needs no
    gradient.
    """
    layers = list(convolutions(width, blocks))
    forward = [2 * layer.kernel**2 * layer.inputs * layer.outputs * layer.side**2 for layer in layers]
    classifier = 2 * width * 2 ** (len(blocks) - 1) * classes
    return 3 * (sum(forward) + classifier) - forward[0]


def amdahl(serial: float, gpus: float) -> float:
    """Return the speed-up of a job of fixed size, of which the share `serial` does not divide (Amdahl, 1967)."""
    return 1 / (serial + (1 - serial) / gpus)


def gustafson(serial: float, gpus: float) -> float:
    """Return the speed-up of a job that grows with the GPUs (Gustafson, 1988).

    `serial` is the share of the time on many GPUs whose work does not grow.
    """
    return gpus - serial * (gpus - 1)


@dataclass(frozen=True)
class Serial:
    """The share of a job that does not divide: the fit's, and the least and the most that one measured point allows."""

    share: float
    least: float
    most: float


def fit_serial(law: str, gpus: Sequence[float], speedups: Sequence[float], spreads: Sequence[float]) -> Serial:
    """Fit the serial share to measured speed-ups by least squares; `spreads` are their half-widths.

    Amdahl's law, of "strong" scaling, is a line in the share for 1/speed-up, Gustafson's, of "weak" scaling, for the
    speed-up itself. Each point, moved up and down by its spread, implies a share of its own; the interval holds all of
    these. Raises ValueError for an unknown law, and where no point has more than one GPU.
    """
    if law not in ("strong", "weak"):
        raise ValueError(f"law {law!r} is none of strong, weak")
    points = [point for point in zip(gpus, speedups, spreads, strict=True) if point[0] > 1]
    if not points:
        raise ValueError("a serial share needs a point with more than one GPU")

    def implied(count: float, speedup: float) -> float:
        if law == "strong":
            return (1 / speedup - 1 / count) / (1 - 1 / count)
        return (count - speedup) / (count - 1)

    weights = [(1 - 1 / count) ** 2 if law == "strong" else (count - 1) ** 2 for count, _, _ in points]
    shares = [implied(count, speedup) for count, speedup, _ in points]
    ends = [implied(count, speedup + side * spread) for count, speedup, spread in points for side in (-1, 1)]
    share = sum(weight * part for weight, part in zip(weights, shares, strict=True)) / sum(weights)
    return Serial(share, min(ends), max(ends))


def learning_rate(step: int, steps: int, warm_up_steps: int, rate: float) -> float:
    """Return the learning rate of a step: up in a line for `warm_up_steps`, then down in a line to zero.

    The first step has rate/warm_up_steps, not zero. Step numbers begin at 0 (Goyal and others, 2017, section 2.2).
    """
    if step < warm_up_steps:
        return rate * (step + 1) / warm_up_steps
    return rate * (steps - step) / (steps - warm_up_steps)


def scaled_rate(batch: int, base_rate: float = BASE_RATE, base_batch: int = BASE_BATCH) -> float:
    """Return the learning rate by the linear rule: k times the rate for k times the batch (Goyal and others, 2017)."""
    return base_rate * batch / base_batch
