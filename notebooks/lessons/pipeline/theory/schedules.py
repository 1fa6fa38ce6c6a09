"""Schedules as plain lists: for each rank the steps that it takes, in order. Nothing here knows how long they take.

A step is (kind, stage, micro_batch). Kinds: F forward; B backward; or, in zero-bubble, B apart into I (gradient of
the stage's input, which the stage before waits for) and W (gradient of its weights, for which nobody waits)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from itertools import chain, zip_longest
from typing import NamedTuple

from labkit.engine.errors import PlanError

SCHEDULE_NAMES = {
    "forward_only": "forward only",
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "interleaved 1F1B",
    "zero_bubble": "zero bubble",
    "yours": "your 1F1B",
}


class Step(NamedTuple):
    kind: str
    stage: int
    micro_batch: int


def forward_only(ranks: int, micro_batches: int) -> list[list[Step]]:
    """No backward: every stage takes the micro-batches one after another."""
    return [[Step("F", rank, i) for i in range(micro_batches)] for rank in range(ranks)]


def gpipe(ranks: int, micro_batches: int) -> list[list[Step]]:
    """All forwards, then all backwards (Huang et al., "GPipe", 2019): every micro-batch is in memory at once."""
    counts = range(micro_batches)
    return [[Step(kind, rank, i) for kind in "FB" for i in counts] for rank in range(ranks)]


def one_f_one_b(ranks: int, micro_batches: int) -> list[list[Step]]:
    """As few forwards ahead as the pipeline needs, then one forward, one backward (PipeDream-flush; Narayanan, 2021).

    Rank r runs at most ranks − r micro-batches ahead, whatever their number.
    """
    order = []
    for rank in range(ranks):
        forwards = [Step("F", rank, i) for i in range(micro_batches)]
        backwards = [Step("B", rank, i) for i in range(micro_batches)]
        order.append(_alternate(forwards, backwards, ahead=ranks - 1 - rank))
    return order


def interleaved(ranks: int, micro_batches: int, chunks: int) -> list[list[Step]]:
    """1F1B with several stages a rank: stage s is on rank s mod ranks (Narayanan et al., "Megatron-LM", 2021).

    Micro-batches go in rounds of about `ranks`: each rank takes a round through its first stage, then its second…
    """
    size = micro_batches // max(1, micro_batches // ranks)
    order = []
    for rank in range(ranks):
        forwards, backwards = in_chunks(rank, ranks, micro_batches, chunks, size)
        order.append(_alternate(forwards, backwards, ahead=(chunks - 1) * size + 2 * (ranks - 1 - rank)))
    return order


def in_chunks(rank: int, ranks: int, micro_batches: int, chunks: int, size: int) -> tuple[list[Step], list[Step]]:
    """Return a rank's forwards and its backwards, each in order: rounds of `size` micro-batches, chunk after chunk."""
    stages = [rank + ranks * chunk for chunk in range(chunks)]
    rounds = [range(first, first + size) for first in range(0, micro_batches, size)]
    forwards = [Step("F", stage, i) for part in rounds for stage in stages for i in part]
    backwards = [Step("B", stage, i) for part in rounds for stage in reversed(stages) for i in part]
    return forwards, backwards


def zero_bubble(ranks: int, micro_batches: int) -> list[list[Step]]:
    """1F1B with the backward in two: W waits until there is nothing better to do (Qi et al., "Zero Bubble", 2023).

    Rank r lets r weight gradients lag behind; ranks that would idle at the end do theirs then. (The paper's ZB-H1.)
    """
    order = []
    for rank in range(ranks):
        forwards = [Step("F", rank, i) for i in range(micro_batches)]
        backwards, late = in_two(rank, micro_batches)
        order.append([*_alternate(forwards, backwards, ahead=ranks - 1 - rank), *late])
    return order


def in_two(rank: int, micro_batches: int) -> tuple[list[list[Step]], list[Step]]:
    """Return a rank's backwards, each in two, the weight gradients `rank` steps late; and those left at the end."""
    backwards = [[Step("I", rank, i)] for i in range(micro_batches)]
    for i in range(rank, micro_batches):
        backwards[i].append(Step("W", rank, i - rank))
    late = [Step("W", rank, i) for i in range(max(0, micro_batches - rank), micro_batches)]
    return backwards, late


def _alternate(forwards: list[Step], backwards: list, ahead: int) -> list[Step]:
    """`ahead` forwards first, then a forward and a backward in turn until the forwards are used up, then the rest."""
    backwards = [step if isinstance(step, list) else [step] for step in backwards]
    pairs = zip_longest([[step] for step in forwards[ahead:]], backwards, fillvalue=[])
    return [*forwards[:ahead], *chain.from_iterable(forward + backward for forward, backward in pairs)]


def order_of(schedule: str, ranks: int, micro_batches: int, chunks: int = 1) -> list[list[Step]]:
    """Return the steps of a schedule by its name: forward_only, gpipe, 1f1b (or yours), interleaved or zero_bubble."""
    if schedule == "interleaved":
        return interleaved(ranks, micro_batches, chunks)
    makers = {"forward_only": forward_only, "gpipe": gpipe, "zero_bubble": zero_bubble}
    return makers.get(schedule, one_f_one_b)(ranks, micro_batches)


def layers_of(split: str) -> list[int]:
    """Return the layers of each stage in order: "6-2-2-2" is [6, 2, 2, 2]. Raises PlanError for anything else."""
    if not re.fullmatch(r"\d+(-\d+)*", split):
        raise PlanError(f"split={split!r}: say the layers of each stage, such as '3-3-3-3'")
    return [int(part) for part in split.split("-")]


def split_name(stages: list[int]) -> str:
    """Return the split's name: [6, 2, 2, 2] is "6-2-2-2"."""
    return "-".join(map(str, stages))


def even_split(layers: int, stages: int) -> str:
    """Return the split with as many layers in every stage. Raises PlanError where `stages` does not divide `layers`."""
    if layers % stages:
        fitting = ", ".join(str(n) for n in range(1, layers + 1) if layers % n == 0)
        raise PlanError(f"{layers} layers do not divide into {stages} equal stages; {fitting} stages do")
    return split_name([layers // stages] * stages)


def heavy_split(layers: int, stages: int) -> str:
    """Return a split whose first stage has half of the layers, or three quarters where there are two stages."""
    if stages == 1:
        return str(layers)
    share = layers // 4 if stages == 2 else layers // 2 // (stages - 1)
    return split_name([layers - share * (stages - 1), *[share] * (stages - 1)])


def every_split(layers: int, stages: int) -> Iterator[list[int]]:
    """Yield every way to cut `layers` layers into `stages` stages of at least one: (layers−1 choose stages−1) ways."""
    for cuts in itertools.combinations(range(1, layers), stages - 1):
        yield [end - start for start, end in itertools.pairwise((0, *cuts, layers))]


def require_rounds(schedule: str, ranks: int, count: int) -> None:
    """Raise PlanError where the schedule cannot run `count` micro-batches on so many ranks."""
    if schedule == "1f1b" and count < ranks:
        raise PlanError(f"micro_batches={count}: 1F1B needs at least one per rank, {ranks}")
    rounds = max(1, count // ranks)
    if schedule in ("interleaved", "zero_bubble") and count % rounds:
        fitting = ", ".join(str(n) for n in range(1, 65) if n % max(1, n // ranks) == 0)
        raise PlanError(
            f"micro_batches={count}: {schedule} takes them in equal rounds of about {ranks}, such as {fitting}"
        )
