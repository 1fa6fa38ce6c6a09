"""The judges of lab 15's answers that several ranks run: each wrong result by the mistake behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from labkit.course.judging import relative_distance
from labkit.course.verdict import Verdict
from labkit.story import units
from lessons.fsdp_from_scratch.plan import CASES

_CLOSE = {"bfloat16": 0.05}  # of the gradients' length; rounding alone makes such a difference
_USUAL_CLOSE = 1e-4


def judge_backward(given: list, inputs: Sequence[Sequence[Any]], due: list) -> Verdict:
    """Return the verdict on a unit's backward: `given` is what `tried.drive` tells of each rank, `due` the same of the
    reference solution, for each of `inputs`.
    """
    faults: dict[str, str] = {}
    for (ranks, _, case, *_), mine, right in zip(inputs, given, due, strict=True):
        fault = _backward_fault(ranks, case, mine, right) or _memory_fault(mine, right) or _sent_fault(mine, right)
        if fault:
            faults.setdefault(fault[0], f"in the case `{case}` with {ranks} ranks, {fault[1]}")
    if "wrong" in faults:  # wrong numbers are wrong in these cases, too
        faults.pop("overwritten", None)
    merits = (
        f"the gradients of the reference solution in {len(CASES)} cases, on 2, 3 and 4 ranks",
        "a unit is whole while its backward computes, and is let go after it",
    )
    return Verdict.of_faults("backward", faults, *merits)


def _backward_fault(ranks: int, case: str, given: list, due: list) -> tuple[str, str] | None:
    """Return the first thing that is wrong in what the ranks' shards have as gradients, by the mistake behind it."""
    if not all(rank["gathered"] for rank in given):
        return "not_gathered", "a unit's backward begins, and its weights are not there: gather them before it computes"
    close = _CLOSE.get(case, _USUAL_CLOSE)
    for step in range(len(due[0]["gradients"])):
        pairs = [
            _vectors(mine["gradients"][step], right["gradients"][step]) for mine, right in zip(given, due, strict=True)
        ]
        if any(mine is None for mine, _ in pairs):
            return "no_gradient", "a shard has no gradient after a step: add this rank's part to it, `flat.add(part)`"
        if all(relative_distance(mine, right) <= close for mine, right in pairs):
            continue
        mine, right = (np.concatenate(side) for side in zip(*pairs, strict=True))
        times = float(mine @ right / max(right @ right, 1e-30))
        if abs(times / ranks - 1) < 0.01 and relative_distance(mine, times * right) <= close:
            return "summed", f"the gradients are {ranks} times too large: added up over the ranks, and not divided"
        if abs(times * ranks - 1) < 0.01 and relative_distance(mine, times * right) <= close:
            return "divided_twice", f"the gradients are {ranks} times too small: divided by the number of ranks twice"
        if not any("reduce" in name for rank in given for name, _ in rank["calls"][step]):
            return "silent", "no rank sends its gradients, so no rank has their mean"
        if case in ("accumulation", "no_sync", "two_backwards", "twice"):
            what = "the gradients are not those of all backwards together"
            return "overwritten", f"{what}: what a shard already has of them must stay"
        off = relative_distance(mine, right)
        much = f"{units.percent(off)} of their length" if off < 10 else "many times their length"
        return "wrong", (
            f"the gradients differ from the mean over the ranks by {much}: is the call done when you use its result, "
            "and does each rank get its own part?"
        )
    return None


def _vectors(mine: list, right: list) -> tuple[Any, Any]:
    """Return the gradients of a rank's shards as one vector each; None where the answer left out one that is due."""
    if len(mine) != len(right) or any(a is None and b is not None for a, b in zip(mine, right, strict=True)):
        return None, None
    mine, right = ([number for shard in side for number in shard or ()] for side in (mine, right))
    return np.array(mine), np.array(right)


def _memory_fault(given: list, due: list) -> tuple[str, str] | None:
    most, enough = (max(rank["most_whole"] for rank in side) for side in (given, due))
    if most > enough:
        what = f"the gradients are right, but in backward up to {most} units are whole together, instead of {enough}"
        return "kept", f"{what}: let a unit's weights go when its backward has ended"
    return None


def _sent_fault(given: list, due: list) -> tuple[str, str] | None:
    for rank, (mine, right) in enumerate(zip(given, due, strict=True)):
        sent, enough = (_link_bytes(told["calls"], len(given)) for told in (mine, right))
        if sent > 1.01 * enough:
            what = f"the gradients are right, but rank {rank} sends {units.times(sent / enough)} the bytes needed"
            return "bytes", f"{what}: a rank needs its own part of the mean alone, and each unit is gathered once"
    return None


def _link_bytes(calls: list, ranks: int) -> float:
    """Return the bytes that a rank sends in these calls."""
    share = {"all-reduce": 2 * (ranks - 1) / ranks}
    return sum(share.get(name, (ranks - 1) / ranks) * size for step in calls for name, size in step)


def judge_clip(given: list, inputs: Sequence[Sequence[Any]], due: list) -> Verdict:
    """Return the verdict on `clip`; takes what `judge_backward` takes."""
    faults: dict[str, str] = {}
    for (ranks, _, case, _, most), mine, right in zip(inputs, given, due, strict=True):
        if fault := _clip_fault(ranks, most, mine, right):
            faults.setdefault(fault[0], f"in the case `{case}` with {ranks} ranks, {fault[1]}")
    merits = (
        "on 2, 3 and 4 ranks the length is that of all gradients, and they are scaled as in one process",
        "one number is sent",
    )
    return Verdict.of_faults("clip", faults, *merits)


def _clip_fault(ranks: int, most: float, given: list, due: list) -> tuple[str, str] | None:
    for step, length_due in enumerate(due[0]["lengths"]):
        lengths = [rank["lengths"][step] for rank in given]
        if max(abs(length / length_due - 1) for length in lengths) > _USUAL_CLOSE:
            return _length_fault(ranks, most, lengths, length_due)
        for rank, (mine, right) in enumerate(zip(given, due, strict=True)):
            vectors = _vectors(mine["gradients"][step], right["gradients"][step])
            if vectors[0] is None or vectors[0].shape != vectors[1].shape or relative_distance(*vectors) > _USUAL_CLOSE:
                where = f"the length is right, and the gradients of rank {rank} are not scaled to {most:g}"
                if length_due < most:
                    return "scaled_up", f"{where}: they are shorter, {length_due:.3g}, and must stay as they are"
                return "not_scaled", f"{where}: change them in place, `gradient *= …`, by the same factor on all ranks"
            if sum(size for _, size in mine["calls"][step]) > 64:
                return "bytes", "the length is right, but whole gradients are sent: one number per rank is enough"
    return None


def _length_fault(ranks: int, most: float, lengths: list[float], due: float) -> tuple[str, str]:
    root = math.sqrt(sum(length**2 for length in lengths))
    if max(lengths) - min(lengths) > _USUAL_CLOSE * due and abs(root / due - 1) < _USUAL_CLOSE:
        return "own_part", "each rank returns the length of its own part: every rank needs that of all parts"
    if abs(lengths[0] / min(due, most) - 1) < 1e-3:
        return "after", f"it returns {lengths[0]:.4g}, the length after clipping, and {due:.4g} is the one before"
    if abs(lengths[0] / due**2 - 1) < _USUAL_CLOSE:
        return "square", "it returns the square of the length"
    if (
        abs(lengths[0] * math.sqrt(ranks) / due - 1) < _USUAL_CLOSE
        or abs(lengths[0] / math.sqrt(ranks) / due - 1) < _USUAL_CLOSE
    ):
        return (
            "averaged",
            f"the length is off by √{ranks}: squares are added over the ranks, neither averaged nor counted twice",
        )
    if lengths[0] > due:
        return "lengths_added", f"it returns {lengths[0]:.4g} instead of {due:.4g}: add squares, not lengths"
    return "wrong_length", f"it returns {lengths[0]:.4g}, and the length of all gradients is {due:.4g}"
