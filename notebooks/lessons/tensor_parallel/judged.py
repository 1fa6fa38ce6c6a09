"""The judges of lab 16's answers that several ranks run: each wrong result by the mistake behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from labkit.course.judging import relative_distance
from labkit.course.verdict import Verdict
from labkit.story import units

_CLOSE = 1e-4  # relative
_WEIGHTS = ("the column-parallel weight", "`self.weight`", "`self.bias`")


def judge_row(given: list, inputs: Sequence[Sequence[Any]], due: list) -> Verdict:
    """Return the verdict on a row-parallel forward and the backward of what enters: `given` is what `tried.drive` tells
    of each rank, `due` the same of the reference solution, for each of `inputs`.
    """
    faults: dict[str, str] = {}
    for (ranks, _, case, _), mine, right in zip(inputs, given, due, strict=True):
        if fault := _row_fault(mine, right) or _calls_fault(mine, right):
            faults.setdefault(fault[0], f"in the case `{case}` with {ranks} ranks, {fault[1]}")
    merits = (
        "on 2, 3 and 4 ranks outputs and all gradients are those of whole layers",
        "one sum is sent in forward, and one in backward",
    )
    return Verdict.of_faults("row", faults, *merits)


def _row_fault(given: list, due: list) -> tuple[str, str] | None:
    ranks = len(due)
    for rank, (mine, right) in enumerate(zip(given, due, strict=True)):
        value, value_due = np.array(mine["value"]), np.array(right["value"])
        if value.shape != value_due.shape:
            what = f"the output of rank {rank} has {value.size} numbers, and {value_due.size} are due"
            return "form", f"{what}: `self.ranks.leave` gives each rank those that it keeps"
        if not _near(value, value_due):
            return _output_fault(rank, ranks, value, value_due, right["bias"])
    for rank, (mine, right) in enumerate(zip(given, due, strict=True)):
        pairs = zip(mine["weights"], right["weights"], strict=True)
        weights = [(what, *pair) for what, pair in zip(_WEIGHTS, pairs, strict=False)]  # with a bias or without
        for what, own, own_due in (("the input", mine["input"], right["input"]), *weights):
            if what == "`self.bias`":
                if own is None or not _near(np.array(own), np.array(own_due)):
                    return "bias_gradient", (
                        f"the outputs are right, and the gradient of {what} is not on rank {rank}: every rank adds the "
                        "whole bias, after the sum"
                    )
                continue
            if own is None:
                said = f"the outputs are right, and {what} has no gradient on rank {rank}"
                return "no_gradient", f"{said}: `self.ranks.leave` has one, `self.ranks.sum` has none"
            own, own_due = np.array(own), np.array(own_due)
            if own.shape == own_due.shape and _near(own, own_due):
                continue
            if what == "the input" and len(mine["calls"]) > len(right["calls"]):
                return "again", (
                    f"the outputs are right, and the gradient of the input is not on rank {rank}, which sends "
                    f"{len(mine['calls'])} times instead of {len(right['calls'])}: `x` is split already, so it does "
                    "not enter again"
                )
            if what == "the input":
                return "not_summed", (
                    f"the outputs are right, and the gradient of the input is not on rank {rank}: each rank's columns "
                    "have used the input, so their gradients add up"
                )
            return "weights", f"the outputs are right, and the gradient of {what} is not on rank {rank}"
    return None


def _output_fault(rank: int, ranks: int, value: np.ndarray, due: np.ndarray, bias: list[float]) -> tuple[str, str]:
    if bias:
        extra = (value - due).reshape(-1, len(bias))
        if _near(extra, np.broadcast_to((ranks - 1) * np.array(bias), extra.shape)):
            return "bias", f"the bias is in the output {ranks} times: every rank adds it before the sum"
        if _near(-extra, np.broadcast_to(np.array(bias), extra.shape)):
            return "no_bias", "the bias is missing in the output"
    if _near(value * ranks, due):
        return "averaged", f"the output is {ranks} times too small: the parts are added up, not averaged"
    what = f"the output of rank {rank} is {units.percent(relative_distance(value, due))} off"
    return "partial", f"{what}: each rank has a part of every output, and `self.ranks.leave` adds them up"


def _near(mine: np.ndarray, right: np.ndarray) -> bool:
    return bool(relative_distance(mine, right) <= _CLOSE)


def _calls_fault(given: list, due: list) -> tuple[str, str] | None:
    for rank, (mine, right) in enumerate(zip(given, due, strict=True)):
        sent, enough = (sum(size for _, size in told["calls"]) for told in (mine, right))
        if sent > enough:
            what = f"all numbers are right, but rank {rank} sends {units.times(sent / enough)} the bytes needed"
            return "bytes", f"{what}: leave once in forward, and sum once in backward"
    return None


def judge_loss(given: list, inputs: Sequence[Sequence[Any]], due: list) -> Verdict:
    """Return the verdict on a `parallel_loss`; takes what `judge_row` takes."""
    faults: dict[str, str] = {}
    for (ranks, _, case, _), mine, right in zip(inputs, given, due, strict=True):
        if fault := _loss_fault(mine, right):
            faults.setdefault(fault[0], f"in the case `{case}` with {ranks} ranks, {fault[1]}")
    merits = ("on 2, 3 and 4 ranks loss and gradients are those of whole logits", "three numbers per token are sent")
    return Verdict.of_faults("parallel_loss", faults, *merits)


def _loss_fault(given: list, due: list) -> tuple[str, str] | None:
    for rank, (mine, right) in enumerate(zip(given, due, strict=True)):
        value, value_due = mine["value"], right["value"]
        if value is None:
            return "form", "return the loss, a tensor with one number"
        if math.isnan(value) or math.isinf(value):
            return "overflow", "the loss is no number: subtract the largest logit of all ranks before `exp`"
        if abs(value / value_due - 1) > _CLOSE:
            others = [told["value"] for told in given]
            if max(others) - min(others) > _CLOSE * abs(value_due):
                return "apart", "the ranks have different losses: a sum of one number per token is missing"
            return "wrong", (
                f"the loss is {value:.4f}, and {value_due:.4f} is due. Subtract one number per token, the largest "
                "logit of all ranks, from all logits, and add up: the exponentials of all words, and the target's "
                "logit, for which the ranks that lack the word give zero"
            )
        if mine["gradient"] is None:
            return "no_gradient", f"the loss is right, and the logits of rank {rank} have no gradient"
        if not _near(np.array(mine["gradient"]), np.array(right["gradient"])):
            return "gradient", (
                f"the loss is right, and the gradient of rank {rank}'s logits is not: `ranks.sum_over_ranks` has a "
                "gradient, `ranks.sum` has none"
            )
        sent, enough = (sum(size for _, size in told["calls"]) for told in (mine, right))
        if sent > enough:
            what = f"loss and gradients are right, but rank {rank} sends {units.times(sent / enough)} the bytes needed"
            return "bytes", f"{what}: one number per token in each call, not the logits"
    return None
