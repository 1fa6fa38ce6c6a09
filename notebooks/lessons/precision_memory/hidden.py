"""Hidden cases of the exercises of lab 07: the ones that a grader asks."""

from __future__ import annotations

import functools
from random import Random

from labkit.course.cases import Cases
from labkit.course.verdict import Verdict
from labkit.engine.launch import launch
from lessons.precision_memory.exercise import CONFIGURATIONS as SHOWN
from lessons.precision_memory.exercise import judge_peaks, judge_placement
from lessons.precision_memory.plan import Hidden
from lessons.precision_memory.tables.memory import MIB
from lessons.precision_memory.theory.levers import Block, best_placement, checkpointed_peak

# vocabulary, hidden, inner, layers, heads, samples, sequence, precision, phase. Each student gets some of these, so
# that a grader measures each of them once.
CONFIGURATIONS = (
    (1200, 160, 640, 3, 4, 1, 24, "float32", "first"),
    (1200, 160, 640, 3, 4, 1, 24, "float32", "steady"),
    (600, 128, 512, 5, 4, 4, 80, "float32", "steady"),
    (600, 128, 512, 5, 4, 4, 80, "bfloat16", "steady"),
    (5000, 64, 192, 2, 2, 4, 72, "float32", "steady"),
    (900, 144, 576, 4, 4, 2, 66, "bfloat16", "steady"),
    (300, 64, 256, 4, 4, 2, 64, "float32", "first"),
)


def _configurations(random: Random) -> list:
    return [CONFIGURATIONS[number] for number in sorted(random.sample(range(len(CONFIGURATIONS)), 4))]


@functools.cache
def _measured() -> tuple[dict[tuple, float], str]:
    """Return the measured peaks of all configurations in bytes, and where they were measured."""
    every = (*SHOWN, *CONFIGURATIONS)
    run = launch(Hidden.sized("auto", configurations=every), progress=False)
    return dict(zip(every, run.rows["peak_mib"] * MIB, strict=True)), run.plan.device


def _judge_peaks(given: list, inputs: list) -> Verdict:
    peaks, device = _measured()
    configurations = [tuple(one) for one in inputs]
    return judge_peaks(given, [peaks[one] for one in configurations], device, configurations)


def _placements(random: Random) -> list:
    """Return blocks and budgets that some placement keeps."""
    drawn = []
    while len(drawn) < 4:
        blocks = [
            Block(float(random.randint(4, 20)), float(random.randint(1, 3)), float(random.randint(1, 9)))
            for _ in range(random.randint(3, 6))
        ]
        chosen = {number for number in range(len(blocks)) if random.random() < 0.6}
        budget = checkpointed_peak(blocks, chosen)
        if best_placement(blocks, budget) is not None:
            drawn.append(([list(one) for one in blocks], budget))
    return drawn


HIDDEN = {
    "peak_bytes": Cases(_configurations, _judge_peaks, may_import=("labkit.theory.transformer.activations",)),
    "placement": Cases(
        _placements,
        lambda given, inputs: judge_placement(
            given, [([Block(*one) for one in blocks], budget) for blocks, budget in inputs]
        ),
    ),
}
