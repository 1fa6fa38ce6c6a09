"""The judges of lab 11's answers that several ranks run: each wrong result by the mistake behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from labkit.course.verdict import Verdict
from labkit.story import units

RATE, BETA = 0.5, 0.7  # of `worker/tried_momentum.py`, which is out of reach here
_CLOSE = 1e-4  # of the weights' largest number


def judge_momentum(given: list, inputs: Sequence[Sequence[Any]], due: list) -> Verdict:
    """Return the verdict on a `momentum_step`: `given` is what `tried_momentum.drive` tells of each rank, for each of
    `inputs`; `due` the same of the reference solution.
    """
    faults: dict[str, str] = {}
    for (ranks, part, *_), mine, right in zip(inputs, given, due, strict=True):
        fault = _form_fault(mine) or _weight_fault(mine, right) or _kept_fault(mine, part) or _sent_fault(mine, right)
        if fault:
            faults.setdefault(fault[0], f"with {ranks} ranks, {fault[1]}")
    merits = (
        "on 2, 3 and 4 ranks every weight is that of one process with the mean gradient",
        "each rank keeps the momentum of its own part; a step sends no more than an all-reduce does",
    )
    return Verdict.of_faults("momentum_step", faults, *merits)


def say_what_fits(verdict: Verdict) -> Verdict:
    """Add to torch's words on tensors of other sizes than a collective of this group takes."""
    faults = {
        kind: f"{sentence} The collective's tensors do not fit this group: pass it as `group=`; one tensor has a "
        "part, the other all parts"
        if "Shape" in sentence
        else sentence
        for kind, sentence in verdict.faults.items()
    }
    return replace(verdict, faults=faults)


def _form_fault(given: list) -> tuple[str, str] | None:
    for rank, told in enumerate(given):
        for step, (numbers, _) in enumerate(told["kept"]):
            if not numbers:
                what = f"step {step} returns no tensor on rank {rank}"
                return "form", f"{what}: return the momentum of this rank's part, which the next step needs"
    return None


@np.errstate(all="ignore")  # memory that was never written may hold any number
def _weight_fault(given: list, due: list) -> tuple[str, str] | None:
    """Return the first wrong step, by the mistake behind all weights, or by what is wrong in it."""
    mine, right = (np.array([rank["weights"] for rank in side]) for side in (given, due))  # rank, step, number
    if mine.shape != right.shape:
        return "form", "the weight has another length after a step: change it in place"
    if _is_near(mine, right):
        return None
    start, gradients = np.array(due[0]["start"]), np.array([rank["gradients"] for rank in due])
    for kind, (weights, sentence) in _mistakes(start, gradients).items():
        if _is_near(mine, weights):
            return kind, sentence
    ranks, _, length = right.shape
    wrong = np.abs(mine - right) > _CLOSE * np.abs(right).max()
    wrong |= np.isnan(mine)
    step = int(np.argmax(wrong.any(axis=(0, 2))))
    own = [wrong[rank, step].reshape(ranks, -1)[rank].any() for rank in range(ranks)]
    if not any(own):
        gathers = any("gather" in name or "broadcast" in name for rank in given for name, _ in rank["calls"])
        what = f"after step {step} each rank's own part of the weight is right, and another rank's is not"
        if gathers:
            return "not_waited", f"{what}: it returns before the gathered parts are there"
        return "not_gathered", f"{what}: nothing is gathered, so the ranks' weights drift apart"
    rank, number = (int(index[0]) for index in np.nonzero(wrong[:, step]))
    value, value_due = mine[rank, step, number], right[rank, step, number]
    part = f"which is in the part of rank {number * ranks // length}"
    return "wrong", (
        f"after step {step} number {number} of the weight, {part}, is {value:.4f} on rank {rank} and should be "
        f"{value_due:.4f}: is the mean of this part complete when you use it?"
    )


def _mistakes(start: np.ndarray, gradients: np.ndarray) -> dict[str, tuple[np.ndarray, str]]:
    """Return the weights (rank, step, number) that each mistake leaves, with its sentence."""
    ranks, means, own_parts = len(gradients), gradients.mean(0), _own_parts(gradients)
    trained = {
        "summed": (
            _trained(start, ranks * means),
            f"the step is {ranks} times too long: the gradients are added up over the ranks, and not divided",
        ),
        "divided_twice": (
            _trained(start, means / ranks),
            f"the step is {ranks} times too short: the gradients are divided by the number of ranks twice",
        ),
        "not_reduced": (
            _trained(start, own_parts),
            "each rank updates its part with its own gradient: it needs the mean over all ranks",
        ),
        "not_reduced_but_divided": (
            _trained(start, own_parts / ranks),
            "each rank updates its part with its own gradient, divided by the ranks: no sum over the ranks is made",
        ),
        "no_momentum": (
            _trained(start, means, beta=0.0),
            "every step is as long as the first: the momentum of the step before, times `beta`, is not in it",
        ),
        "dampened": (
            _trained(start, means, new=1 - BETA),
            "the mean gradient is multiplied by 1 − `beta`: this momentum is `beta` × momentum + mean",
        ),
        "uphill": (_trained(start, -means), "the weight moves along the gradient: subtract the step"),
    }
    every = {
        kind: (np.broadcast_to(weights, (ranks, *weights.shape)), text) for kind, (weights, text) in trained.items()
    }
    for shift, which in ((0, "the part of rank 0"), (1, "the next rank's part")):
        chosen = [0 if shift == 0 else (rank + shift) % ranks for rank in range(ranks)]
        every[f"wrong_part_{shift}"] = (
            np.broadcast_to(_with_parts_of(start, means, chosen), (ranks, *means.shape)),
            f"each rank updates {which} of the weight: rank r owns part r of `weight.chunk(ranks)`",
        )
    return every


def _own_parts(gradients: np.ndarray) -> np.ndarray:
    """Return of each step rank 0's first part, rank 1's second, and so on."""
    ranks, steps, length = gradients.shape
    parts = gradients.reshape(ranks, steps, ranks, length // ranks)
    return np.stack([parts[rank, :, rank] for rank in range(ranks)], axis=1).reshape(steps, length)


def _trained(start: np.ndarray, means: np.ndarray, beta: float = BETA, new: float = 1.0) -> np.ndarray:
    """Return the weights (step, number) of one process that takes these gradients."""
    weights, momentum = [start], np.zeros_like(start)
    for mean in means:
        momentum = beta * momentum + new * mean
        weights.append(weights[-1] - RATE * momentum)
    return np.stack(weights[1:])


def _with_parts_of(start: np.ndarray, means: np.ndarray, chosen: Sequence[int]) -> np.ndarray:
    """Return the weights where rank r updates part `chosen[r]` with the gradient of part r, and its part is sent."""
    ranks, weights, momentum = len(chosen), [start], np.zeros_like(start)
    for mean in means:
        momentum = BETA * momentum + mean
        parts = weights[-1].reshape(ranks, -1)[[*chosen]].reshape(-1)
        weights.append(parts - RATE * momentum)
    return np.stack(weights[1:])


def _is_near(mine: np.ndarray, right: np.ndarray) -> bool:
    return bool(np.abs(mine - right).max() <= _CLOSE * np.abs(right).max())  # false for NaN


def _kept_fault(given: list, part: int) -> tuple[str, str] | None:
    for rank, told in enumerate(given):
        numbers, room = max(told["kept"])
        if numbers > part:
            what = f"rank {rank} keeps {numbers} numbers of momentum, and its part of the weight has {part}"
            return "whole_momentum", f"the weights are right, but {what}: nothing is saved"
        if room > part:
            what = f"the momentum of rank {rank} is a view into a tensor of {room} numbers, and its part has {part}"
            return "kept_memory", f"the weights are right, but {what}: the whole tensor stays in memory"
    return None


def _sent_fault(given: list, due: list) -> tuple[str, str] | None:
    for rank, (mine, right) in enumerate(zip(given, due, strict=True)):
        sent, enough = (_sent_bytes(told["calls"], len(given)) for told in (mine, right))
        if sent > 1.01 * enough:
            what = f"the weights are right, but rank {rank} sends {units.times(sent / enough)} the bytes needed"
            names = [name for name, _ in mine["calls"]]
            if "all-reduce" in names:
                return "bytes", f"{what}: an all-reduce gives each rank the whole mean, and it needs only its part"
            return "bytes", f"{what}: a reduce-scatter of the gradient and an all-gather of the weight are enough"
    return None


def judge_zero(given: list, inputs: Sequence[Sequence[Any]], due: list) -> Verdict:
    """Return the verdict on an `update_all`: `given` is what `tried_zero.drive` tells of each rank, for each of
    `inputs`; `due` the same of the reference solution.
    """
    faults: dict[str, str] = {}
    for (ranks, *_), mine, right in zip(inputs, given, due, strict=True):
        fault = _zero_fault(mine, right) or _order_fault(mine)
        if fault:
            faults.setdefault(fault[0], f"with {ranks} ranks, {fault[1]}")
    merits = (
        "on 2, 3 and 4 ranks the weights are those of one process with the mean gradient",
        "gradients are scattered, and a bucket is gathered while the next one is updated",
    )
    return Verdict.of_faults("update_all", faults, *merits)


@np.errstate(all="ignore")  # memory that was never written may hold any number
def _zero_fault(given: list, due: list) -> tuple[str, str] | None:
    """Return the first wrong step of all ranks, by the mistake behind it."""
    mine, right = (np.array([rank["weights"] for rank in side]) for side in (given, due))  # rank, step, number
    if _is_near(mine, right):
        return None
    events = [event for rank in given for step in rank["events"] for event in step]
    if not any(map(_is_gather, events)):
        return "not_gathered", "no rank gathers a bucket, so each has new weights in its own part alone"
    start, ranks = np.array(due[0]["start"]), len(right)
    moved, moved_due = mine[:, 0] - start, right[:, 0] - start
    if not any(isinstance(event, list) and "reduce" in event[0] for event in events):
        return "not_reduced", "no rank sends its gradients: a part must move along their mean over all ranks"
    if not moved.any():
        return "no_update", "no weight changes in the first step: call `update_part` for each bucket"
    updates, updates_due = (side[0]["events"][0].count("update") for side in (given, due))
    if updates != updates_due:
        return "buckets", f"rank 0 updates {updates} of {updates_due} buckets in the first step"
    factor = float((moved * moved_due).sum() / (moved_due**2).sum())
    if np.abs(moved - factor * moved_due).max() <= _CLOSE * np.abs(moved).max():
        if abs(factor / ranks - 1) < 0.01:
            return "summed", f"the first step is {ranks} times too long: the gradients are added up, and not divided"
        if abs(factor * ranks - 1) < 0.01:
            return "divided_twice", f"the first step is {ranks} times too short: the gradients are divided twice"
    if any(_gathers_before_its_update(step) for rank in given for step in rank["events"]):
        return "gathered_early", "a bucket is gathered before this rank's part of it is updated"
    step = int(np.argmax([not _is_near(mine[:, step], right[:, step]) for step in range(mine.shape[1])]))
    last = _is_near(mine[-1, : step + 1], right[-1, : step + 1])
    apart = np.abs(mine[:, step] - mine[0, step]).max() > _CLOSE * np.abs(right).max()
    if last or apart:
        what = f"after step {step} the ranks have different weights"
        return (
            "not_waited",
            f"{what}: wait for every call before you use its result and before you return",
        )
    what = f"the weights of step {step} are wrong, the same on all ranks"
    return "wrong", f"{what}: is the mean that `update_part` gets complete, and of this rank's part?"


def _is_gather(event: Any) -> bool:
    """Return whether an event is a collective that brings a rank what others have."""
    return isinstance(event, list) and ("gather" in event[0] or "broadcast" in event[0])


def _gathers_before_its_update(events: list) -> bool:
    updates = gathers = 0
    for event in events:
        updates += event == "update"
        gathers += _is_gather(event)
        if gathers > updates:
            return True
    return False


def _order_fault(given: list) -> tuple[str, str] | None:
    """Return what is wrong in the calls of a right step: bytes, or a gather that hides behind no update."""
    for rank, told in enumerate(given):
        for events in told["events"]:
            calls = [event for event in events if isinstance(event, list)]
            if "all-reduce" in [name for name, _ in calls]:
                what = f"the weights are right, but rank {rank} all-reduces gradients: it sends 1.5× the bytes"
                return "bytes", f"{what}, and needs its part of the mean alone"
            last = max((number for number, event in enumerate(events) if event == "update"), default=0)
            if "wait" in events[:last]:
                what = f"rank {rank} waits for a gather before it updates the next bucket"
                return "waits", f"the weights are right, but {what}: start all gathers, and wait for them at the end"
            if last and not any(_is_gather(event) for event in events[:last]):
                what = f"rank {rank} gathers nothing before its last update"
                return "late", f"the weights are right, but {what}: gather a bucket while the next is updated"
    return None


def _sent_bytes(calls: list, ranks: int) -> float:
    """Return the bytes that a rank sends in these calls, on average: of N broadcasts in turn it sends one."""
    share = {"all-reduce": 2 * (ranks - 1) / ranks, "send": 1.0, "recv_": 0.0}
    return sum(share.get(name, (ranks - 1) / ranks) * size for name, size in calls)
