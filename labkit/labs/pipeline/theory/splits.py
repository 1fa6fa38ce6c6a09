"""Splits: how the layers are cut into stages, and which cut would be fastest."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

from labkit.engine.errors import PlanError


def layers_of(split: str) -> list[int]:
    """Give the layers of each stage in order: "6-2-2-2" is [6, 2, 2, 2]. Raises PlanError for anything else."""
    if not re.fullmatch(r"\d+(-\d+)*", split):
        raise PlanError(f"split={split!r}: say the layers of each stage, such as '3-3-3-3'")
    return [int(part) for part in split.split("-")]


def named(stages: list[int]) -> str:
    """Give the split's name: [6, 2, 2, 2] is "6-2-2-2"."""
    return "-".join(map(str, stages))


def even_split(layers: int, stages: int) -> str:
    """Give the split with as many layers in every stage. Raises PlanError where `stages` does not divide `layers`."""
    if layers % stages:
        fitting = ", ".join(str(n) for n in range(1, layers + 1) if layers % n == 0)
        raise PlanError(f"{layers} layers do not divide into {stages} equal stages; {fitting} stages do")
    return named([layers // stages] * stages)


def heavy_split(layers: int, stages: int) -> str:
    """Give a split whose first stage has half of the layers, or three quarters where there are two stages."""
    if stages == 1:
        return str(layers)
    share = layers // 4 if stages == 2 else layers // 2 // (stages - 1)
    return named([layers - share * (stages - 1), *[share] * (stages - 1)])


def every_split(layers: int, stages: int) -> Iterator[list[int]]:
    """Give every way to cut `layers` layers into `stages` stages of at least one: (layers−1 choose stages−1) ways."""
    for cuts in itertools.combinations(range(1, layers), stages - 1):
        yield [end - start for start, end in itertools.pairwise((0, *cuts, layers))]


def best_split(layers: int, stages: int, seconds: Callable[[list[int]], float]) -> str:
    """Give the split for which `seconds` says the least, of all there are; of equals, the one nearest to even."""
    return named(min(every_split(layers, stages), key=lambda cut: (seconds(cut), max(cut))))
