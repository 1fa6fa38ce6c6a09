"""The simulator: a schedule and how long each step takes → when each step runs, how much of the time is bubble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lessons.pipeline.theory.schedules import Step, layers_of

_COMPUTE = ("F", "B", "I", "W")


class Span(NamedTuple):
    """One finished step: `kind` F, B, I, W, or T (a transfer, on the rank that receives), U (the weights' update)."""

    rank: int
    kind: str
    stage: int
    micro_batch: int
    start: float
    end: float


@dataclass(frozen=True)
class Times:
    """How long steps take, in one unit: a number per stage for F, B and W (W is a part of B), and one transfer.

    `update` is what each rank does after its last backward (optimizer); nobody waits for it but the end of the step.
    """

    forward: Sequence[float]
    backward: Sequence[float]
    weight: Sequence[float] = ()
    transfer: float = 0.0
    update: Sequence[float] = field(default=())

    def of(self, step: Step) -> float:
        """Return how long the step takes. Without `weight`, W is half of B."""
        if step.kind == "F":
            return self.forward[step.stage]
        backward = self.backward[step.stage]
        weight = self.weight[step.stage] if self.weight else backward / 2
        return {"B": backward, "I": backward - weight, "W": weight}[step.kind]


def simulate(order: list[list[Step]], times: Times) -> list[Span]:
    """Return every span of the schedule, each rank taking its steps in order, each as early as it can.

    Raises ValueError, naming the step, where a schedule waits for something that never happens.
    """
    last = max(step.stage for steps in order for step in steps)
    done: dict[tuple[str, int, int], tuple[float, int]] = {}  # (direction, stage, micro-batch) → when, on which rank
    free, place, spans = [0.0] * len(order), [0] * len(order), []
    moved = True
    while moved:
        moved = False
        for rank, steps in enumerate(order):
            while place[rank] < len(steps) and all(key in done for key in _needs(steps[place[rank]], last)):
                step, arrived = steps[place[rank]], 0.0
                for key in _needs(step, last):
                    when, origin = done[key]
                    if origin != rank:  # received first, when both sides are ready
                        arrived = max(when, free[rank]) + times.transfer
                start = max(free[rank], arrived)
                free[rank] = start + times.of(step)
                spans.append(Span(rank, *step, start, free[rank]))
                done[gives(step)] = (free[rank], rank)
                place[rank], moved = place[rank] + 1, True
    for rank, steps in enumerate(order):
        if place[rank] < len(steps):
            kind, stage, micro_batch = steps[place[rank]]
            raise ValueError(f"rank {rank} waits forever before {kind}{micro_batch} of stage {stage}")
    spans += [Span(rank, "U", -1, -1, free[rank], free[rank] + time) for rank, time in enumerate(times.update)]
    return spans


def _needs(step: Step, last: int) -> list[tuple[str, int, int]]:
    """Return what a step waits for: the stage before (F), its own F and the stage after (B or I), its own I (W)."""
    kind, stage, i = step
    if kind == "F":
        return [("F", stage - 1, i)] if stage else []
    if kind == "W":
        return [("B", stage, i)]
    return [("F", stage, i)] + ([("B", stage + 1, i)] if stage < last else [])


def gives(step: Step) -> tuple[str, int, int]:
    """Return what others wait for once the step is done, as direction, stage and micro-batch: of I what B gives."""
    return ("B" if step.kind == "I" else step.kind, step.stage, step.micro_batch)


def step_time(spans: list[Span]) -> float:
    """Return the time from the first span's start to the last one's end."""
    return max(span.end for span in spans) - min(span.start for span in spans)


def bubble(spans: list[Span]) -> float:
    """Return the share of the ranks' time in which they compute nothing, from the first F to the last B or W."""
    compute = [span for span in spans if span.kind in _COMPUTE]
    ranks = len({span.rank for span in compute})
    return 1 - sum(span.end - span.start for span in compute) / (ranks * step_time(compute))


def in_flight(spans: list[Span], load: Sequence[float] = ()) -> list[float]:
    """Return, per rank, the most micro-batches at once whose activations it keeps: from their F to the end of B or W.

    `load` says how much one micro-batch of a stage counts (one if left out): its layers, for memory.
    """
    ends = "W" if any(span.kind == "W" for span in spans) else "B"
    most = []
    for rank in sorted({span.rank for span in spans}):
        of_rank = [span for span in spans if span.rank == rank]
        events = [(span.start, 1, span.stage) for span in of_rank if span.kind == "F"]
        events += [(span.end, -1, span.stage) for span in of_rank if span.kind == ends]
        kept, peak = 0.0, 0.0
        for _, sign, stage in sorted(events):
            kept += sign * (load[stage] if load else 1)
            peak = max(peak, kept)
        most.append(peak)
    return most


def closed_form(schedule: str, ranks: int, micro_batches: int, chunks: int = 1, times=(1.0, 2.0, 1.0)) -> float:
    """Return the bubble share by formula, for equal stages and no transfers; `times` are F, B and W of one rank.

    With p ranks, m micro-batches and v chunks a rank: (p−1)/(m+p−1) for GPipe, 1F1B and forward only;
    (p−1)/(v·m+p−1) interleaved (Narayanan et al.); (p−1)(F+B−2W)/(m(F+B)+(p−1)(F+B−2W)) for ZB-H1 (Qi et al., whose B
    is our I = B − W).
    """
    p, m = ranks, micro_batches
    if schedule == "interleaved":
        return (p - 1) / (chunks * m + p - 1)
    if schedule == "zero_bubble":
        forward, backward, weight = times
        idle = (p - 1) * max(0.0, forward + backward - 2 * weight)
        return idle / (m * (forward + backward) + idle)
    return (p - 1) / (m + p - 1)


def speedup_limit(mode: str, before: int, after: int, micro_batches: int) -> float:
    """Return the largest speed-up from `before` to `after` ranks that equal stages allow without communication.

    Streaming: as the ranks. Fenced or GPipe training with m micro-batches: from p to q ranks (q/p)·(m+p−1)/(m+q−1), for
    each step has its own bubble.
    """
    if mode == "streaming":
        return after / before
    return after / before * (micro_batches + before - 1) / (micro_batches + after - 1)


def split_limit(mode: str, even: str, other: str, micro_batches: int) -> float:
    """Return the throughput of split `other` over that of `even` when all layers take the same and nothing else counts.

    Streaming: the slowest stage sets the pace. Fenced or GPipe training: the m micro-batches go through the slowest
    stage, and the first of them through all others.
    """

    def time(split: str) -> float:
        sizes = layers_of(split)
        return max(sizes) if mode == "streaming" else (micro_batches - 1) * max(sizes) + sum(sizes)

    return time(even) / time(other)
