"""The exercises of lab 14: an all-reduce in two levels, accumulation for an efficiency."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
from IPython.display import HTML

from labkit.course.exercises import CORE, WARM_UP, Cases, Exercise, Exercises, Trial, compared
from labkit.course.judging import Mistake
from labkit.course.lineup import why
from labkit.course.verdict import Verdict
from labkit.story import units
from labkit.story.words import listed
from labkit.theory.traffic import Sent, through_a_link
from lessons.beyond_the_node import theory
from lessons.beyond_the_node.plan import Messages
from lessons.beyond_the_node.tables import messages

if TYPE_CHECKING:
    from labkit.engine.run import Run

ACCUMULATIONS = (
    (0.9, 0.1, 0.23),
    (0.5, 0.125, 0.125),
    (0.95, 0.02, 0.05),
    (0.9, 1.0, 0.01),
    (0.8, 0.4, 0.95),
    (0.75, 0.5, 0.5),
    (0.8, 0.5, 0.504),
    (0.8, 0.5, 0.496),
    (0.97, 0.01, 0.052),
)  # efficiency, seconds of computing per micro-batch, of communication per step: two cases come out even, one is
# just above a whole number and one just below, and one needs many micro-batches


def _exact(efficiency: float, compute_s: float, communication_s: float) -> float:
    return efficiency * communication_s / ((1 - efficiency) * compute_s)


def _accumulations(random: Random) -> list:
    """Return steps that need few micro-batches or many, and a little more or less than a whole number of them."""
    drawn = [(0.75, 0.5, 0.5), (random.uniform(0.5, 0.9), 1.0, random.uniform(0.001, 0.01))]
    for least, most in ((2, 7), (9, 28), (31, 48), (101, 300)):
        for part in (0.03, random.uniform(0.2, 0.8), 0.97):
            efficiency, compute_s = random.uniform(0.6, 0.97), random.uniform(0.02, 0.5)
            exact = random.randint(least, most) + part
            drawn.append((efficiency, compute_s, exact * (1 - efficiency) * compute_s / efficiency))
    return drawn


_ACCUMULATION_FOR = compared(
    "accumulation_for",
    theory.least_accumulation,
    (
        Mistake("unrounded", _exact, "micro-batches come whole"),
        Mistake("rounded_down", lambda *case: max(1, math.floor(_exact(*case) + 1e-9)), "rounded down: too few"),
        Mistake("rounded_down", lambda *case: math.floor(_exact(*case) + 1e-9), "rounded down: too few"),
        Mistake("nearest", lambda *case: max(1, round(_exact(*case))), "rounded to the nearest whole number: too few"),
        Mistake("one_more", lambda *case: math.floor(_exact(*case) + 1e-9) + 1, "one less is enough"),
        Mistake(
            "ratio",
            lambda e, c, s: max(1, math.ceil(e * s / c - 1e-9)),
            "efficiency is computing over the whole step, not over communication",
        ),
        Mistake(
            "overhead",
            lambda e, c, s: max(1, math.ceil(s / ((1 - e) * c) - 1e-9)),
            "communication is compared with computing, not with the whole step",
        ),
        Mistake(
            "upside_down",
            lambda e, c, s: theory.least_accumulation(e, s, c),
            "computing and communication are swapped",
        ),
        Mistake(
            "complement",
            lambda e, c, s: max(1, math.ceil((1 - e) * s / (e * c) - 1e-9)),
            "efficiency is the share of computing, not of communication",
        ),
    ),
    result_form="a whole number of micro-batches",
    rule="efficiency is the time of computing over that of the whole step; return the fewest that reach it",
    merit="the step computes often enough per exchange, and not more often than needed",
    inputs=ACCUMULATIONS,
    grade=WARM_UP,
    cases=Cases(_accumulations),
    hints=(
        "Which part of the step grows with the number of micro-batches, and which part stays as it is?",
        "With k micro-batches the step computes k times and communicates once. Efficiency is computing "
        "over the whole step. It grows with k, so look for the first k that is enough.",
        "`k = 1`, and while `k * compute_s / (k * compute_s + communication_s) < efficiency`, add 1. The "
        "closed form is `ceil(efficiency * communication_s / ((1 - efficiency) * compute_s))`, at least 1.",
    ),
)


_WORKER, _NAME = "lessons.beyond_the_node.worker", "hierarchical_all_reduce"
PER_NODE = (2, 3)  # ranks of a node, of six in all: nodes and ranks per node differ, so nobody takes one for the other
MORE_SENT = 1.1  # times the reference solution's bytes; what an interface counts beside the tensor stays below


def _shown() -> list[tuple[int, int, int, int]]:
    """Return ranks, ranks per node, elements of the tensor and a seed of its values."""
    return [(6, per_node, 12 * per_node, 0) for per_node in PER_NODE]


def _hidden(random: Random) -> list[tuple[int, int, int, int]]:
    return [(6, per_node, per_node * random.randint(1, 9), random.randint(1, 10**6)) for per_node in (1, *PER_NODE, 6)]


def judge_levels(given: list, inputs: Sequence[Sequence[Any]], due: list) -> Verdict:
    """Return the verdict on an all-reduce of two levels: `given` is what `tried.drive` tells of each rank, `due` the
    same of the reference solution, for each of `inputs`.
    """
    for (ranks, per_node, *_), mine, right in zip(inputs, given, due, strict=True):
        fault = _sum_fault(mine, right, per_node) or _sent_fault(mine, right, ranks, per_node)
        if fault:
            return Verdict.of_faults(_NAME, {fault[0]: f"with {_mesh_text(ranks, per_node)}, {fault[1]}"})
    meshes = dict.fromkeys((ranks, per_node) for ranks, per_node, *_ in inputs)
    return Verdict.of_faults(
        _NAME,
        {},
        f"with {listed(_mesh_text(*mesh) for mesh in meshes)}, every rank's tensor holds the sum over all ranks",
        "between nodes each rank sends its share alone",
    )


def _mesh_text(ranks: int, per_node: int) -> str:
    nodes = ranks // per_node
    return f"{nodes} node{'s' if nodes > 1 else ''} of {per_node} rank{'s' if per_node > 1 else ''}"


def _sum_fault(given: list, due: list, per_node: int) -> tuple[str, str] | None:
    """Return what is wrong in the ranks' tensors, by the mistake behind it."""
    starts = np.array([rank["start"] for rank in due])
    sums, later = ([np.array(rank[when], dtype=float) for rank in given] for when in ("sums", "later"))
    right, places = starts.sum(axis=0), np.arange(starts.shape[1])
    wrong = [rank for rank, mine in enumerate(sums) if not np.array_equal(mine, right)]
    if not wrong:
        return None
    first = wrong[0]
    if any(sums[rank].shape != right.shape for rank in wrong):
        return "length", f"the tensor of rank {first} has another length than before"
    share_of_place = places * per_node // len(right)
    of_place = starts.reshape(-1, per_node, len(right)).sum(axis=0)  # over one rank of each node

    def all_have(made: Callable[[int], np.ndarray]) -> bool:
        return all(np.array_equal(sums[rank], made(rank)) for rank in wrong)

    if all(np.array_equal(later[rank], right) for rank in wrong):
        return "unwaited", f"the sums on rank {first} are right only later: wait for each call with `async_op=True`"
    if all_have(lambda rank: starts[rank]):
        what = "holds what it held before: the sums have to be written into `tensor` itself"
        return "unchanged", f"the tensor of rank {first} {what}"
    if silent := [
        rank for rank, mine in enumerate(given) if not any(group == "between" for group, *_ in mine["calls"])
    ]:
        return "no_between", f"rank {silent[0]} calls nothing over `between`: its share lacks the other nodes' values"
    if all_have(lambda rank: of_place[rank % per_node]):
        return (
            "between_only",
            f"rank {first} has the sum over one rank of each node: the others of its node are left out",
        )
    if all_have(lambda _: of_place[share_of_place, places]):
        what = "add up the ranks of a node first, with a reduce-scatter"
        return "not_reduced", f"each share is the sum over one rank of each node: {what}"
    ratio = sums[first][0] / right[0]
    if ratio > 0 and all(np.allclose(sums[rank], ratio * right, rtol=1e-5) for rank in wrong):
        if ratio > 1:
            return "twice", f"the sums are {ratio:.3g} times too large: some values are added more than once"
        return "mean", f"the sums are {1 / ratio:.3g} times too small: a sum is not divided"
    own = [share_of_place == rank % per_node for rank in wrong]
    if all(np.array_equal(sums[rank][mine], right[mine]) for rank, mine in zip(wrong, own, strict=True)):
        what = f"only share {first % per_node} of the tensor holds sums over all ranks"
        return "no_gather", f"on rank {first} {what}: the shares of its node have to be gathered"
    if all(np.array_equal(np.sort(sums[rank]), np.sort(right)) for rank in wrong):
        return "mixed_up", f"the tensor of rank {first} has the right sums in wrong places: share n is its part n"
    if not all(waits for rank in given for *_, waits in rank["calls"]):
        return "unwaited", "a call with `async_op=True` is not waited for before its result is used"
    place = int(np.argmax(sums[first] != right))
    what = f"place {place} of the tensor holds {sums[first][place]:.0f} on rank {first}, not {right[place]:.0f}"
    return "wrong", f"{what}: which ranks' values are in it, and which share is it?"


def _sent_fault(given: list, due: list, ranks: int, per_node: int) -> tuple[str, str] | None:
    """Return which ranks with right sums send more than the reference solution's do."""
    sizes = {"inside": per_node, "between": ranks // per_node}
    sent, enough = ([_sent_bytes(rank["calls"], sizes) for rank in side] for side in (given, due))
    for rank, (mine, right) in enumerate(zip(sent, enough, strict=True)):
        if mine["between"] > MORE_SENT * right["between"]:
            what = f"rank {rank} sends {mine['between']:.0f} B between nodes, and {right['between']:.0f} B are enough"
            if any(not other["between"] for other in sent):
                return "one_rank", f"{what}: it sends the shares of ranks that send nothing"
            return "more_between", f"{what}: a share is 1/{per_node} of the tensor"
    for rank, (mine, right) in enumerate(zip(sent, enough, strict=True)):
        if mine["inside"] > MORE_SENT * right["inside"]:
            what = f"rank {rank} sends {mine['inside']:.0f} B inside its node, and {right['inside']:.0f} B are enough"
            return "more_inside", f"{what}: until the last call it needs its share alone"
    return None


def _sent_bytes(calls: list, sizes: dict[str, int]) -> dict[str, float]:
    """Return what a rank sends over each group in its calls, each a ring."""
    sent = dict.fromkeys(sizes, 0.0)
    for group, collective, whole_bytes, _ in calls:
        sent[group] += through_a_link([Sent(collective, 1, whole_bytes)], sizes[group])
    return sent


def _over_nodes(file: str, *, size: str = "small", gpus: int = 0) -> list[Messages]:
    return [Messages.sized(size, gpus=gpus, seeds=1, yours=file)]


def judge_messages(run: Run) -> Verdict:
    """Return the verdict on an all-reduce that was timed over nodes, with its bytes and its time beside two others.

    Bytes count where the nodes' interfaces count what is sent: those of InfiniBand do not.
    """
    table = messages(run)
    mine = table[table["place"] == "yours"]
    rate, kib = mine["link_mbit"].iloc[-1], mine["kib"].max()
    rows = table[(table["link_mbit"] == rate) & (table["kib"] == kib)].set_index("place")
    sent, times = rows["counted_bytes"], rows["call_ms"]
    is_counted = sent["hierarchical"] >= rows.loc["hierarchical", "link_bytes"] > 0
    where, message, faults = f"on {run.node_count} nodes", units.exact_size(rows.loc["yours", "whole_bytes"]), {}
    if (failed := mine[mine["status"] != "ok"]).size:
        kib, status = failed[["kib", "status"]].iloc[0]
        what = "gives wrong sums" if status == "wrong result" else f"ends with {status}"
        faults["over_nodes"] = f"{where} an all-reduce of {kib} KiB {what}"
    elif is_counted and sent["yours"] > MORE_SENT * sent["hierarchical"]:
        size, enough = units.size(sent["yours"]), units.size(sent["hierarchical"])
        faults["counted"] = f"{where} an all-reduce of {message} sends {size} out of a node, and {enough} are enough"
    names = {"yours": "with yours", "hierarchical": "with the reference solution", "flat": "with one flat ring"}
    sizes = listed(f"{units.size(sent[place])} {text}" for place, text in names.items())
    counted = f"{where}, in an all-reduce of {message}, a node's interface sends {sizes}"
    # Shares of times: the page asks for a time in seconds below.
    two, flat = (units.times(times["yours"] / times[place]) for place in ("hierarchical", "flat"))
    at = f", link at {rate} Mbit/s" if rate else ""
    took = f"yours takes {two} the reference solution's time and {flat} one flat ring's ({run.plan.workers_text}{at})"
    return Verdict.of_faults(_NAME, faults, *([counted] if is_counted else []), took)


_CASES = Cases(
    _hidden,
    driver=f"{_WORKER}.tried",
    on_ranks=True,
    reference=(f"{_WORKER}.two_levels.{_NAME}",),
    may_import=("labkit.worker.collectives", f"{_WORKER}.tried", f"{_WORKER}.two_levels"),
    start_s=40.0,  # torch
)
_HIERARCHICAL_ALL_REDUCE = Exercise(
    _NAME,
    _shown(),
    judge_levels,
    trial=Trial(_over_nodes, judge_messages),
    grade=CORE,
    cases=_CASES,
    solution=_CASES.reference,
    hints=(
        "Which collective gives each rank of a node one part of the node's sum? Which one is its way back?",
        "A share has 1/`per_node` of the elements. A reduce-scatter over `inside` fills it, an all-reduce over "
        "`between` completes it, and an all-gather over `inside` writes all shares into `tensor`.",
        "`share = tensor.new_empty(tensor.numel() // per_node)`, then "
        "`dist.reduce_scatter_tensor(share, tensor, group=inside)`. `dist.all_gather_into_tensor(tensor, share, "
        "group=inside)` is the last call.",
    ),
)


check = Exercises("beyond_the_node", _HIERARCHICAL_ALL_REDUCE, _ACCUMULATION_FOR)
hint, solution, attempts, yours = check.hint, check.solution, check.attempts, check.yours


def why_less() -> HTML:
    """Ask why HSDP sends so much less between nodes than FSDP over all GPUs."""
    return why(
        "Both shard everything. Why does HSDP send so much less between nodes?",
        (
            "It gathers weights inside the node",
            "Each node holds all weights, in shards. Between nodes only gradients travel, once per step.",
        ),
        (
            "It shards into more pieces",
            "Into fewer: as many as a node has GPUs. So each GPU holds more than under FSDP.",
        ),
        ("Its gradients are smaller", "They are the same. All of them are exchanged between the nodes."),
    )
