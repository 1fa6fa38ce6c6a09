"""The exercises of lab 05: cases, judge and hints of each; then the bugs of sharded trainings to name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.course.exercises import CORE, WARM_UP, Cases, Exercise, Exercises, compared
from labkit.course.exercises import Trial as Launches
from labkit.course.judging import Mistake, float32_mistakes
from labkit.course.lineup import line_up, with_bugs
from labkit.course.verdict import Verdict
from labkit.story import units
from lessons.sharding.plan import Accumulation, Trial
from lessons.sharding.tables import accumulation, symptoms

if TYPE_CHECKING:
    from labkit.engine.run import Run

_SHARDED = (0, 8, 12, 16)  # bytes of 16 per parameter that a stage shards: none, states, + gradients, + parameters
_MIXED = (0, 12, 14, 16)  # the same with weights and gradients in 2 bytes, and a third state: weights in float32


def held_bytes(parameters: int, ranks: int, stage: int) -> float:
    """Return the bytes that a rank holds of parameters, gradients and AdamW's states in float32 under a ZeRO stage."""
    return parameters * (16 - _SHARDED[stage] + _SHARDED[stage] / ranks)


def _settings(random: Random) -> list:
    """Return three models on few ranks and on many, each at every stage."""
    models = [(random.randint(1, 1000) * 10**6, random.randint(*ranks)) for ranks in ((2, 3), (5, 7), (9, 16))]
    return [(parameters, ranks, stage) for parameters, ranks in models for stage in range(4)]


def _at_other_stage(after: int) -> Any:
    return lambda parameters, ranks, stage: held_bytes(parameters, ranks, min(3, max(0, stage + after)))


_HELD_BYTES = compared(
    "held_bytes",
    held_bytes,
    (
        Mistake("ahead", _at_other_stage(1), "that is what the next stage holds"),
        Mistake("stage", _at_other_stage(-1), "that is what the stage before holds"),
        *float32_mistakes(held_bytes, "at every stage"),
        Mistake(
            "one_state",
            lambda p, n, stage: held_bytes(p, n, stage) - 4 * p / (n if stage else 1),
            "AdamW keeps two states for each parameter",
        ),
        Mistake(
            "mixed",
            lambda p, n, stage: p * (16 - _MIXED[stage] + _MIXED[stage] / n),
            "in float32 a parameter and its gradient take 4 bytes each; 2 + 2 + 12 are those of mixed precision",
        ),
        Mistake("together", lambda p, n, stage: n * held_bytes(p, n, stage), "that is what all ranks hold together"),
    ),
    result_form="a number of bytes",
    rule="add the four parts, and divide by the ranks those that the stage shards",
    merit="every stage holds the right bytes",
    cases=Cases(_settings),
    grade=WARM_UP,
    hints=(
        "How many bytes per parameter are there without sharding? In float32 each number takes 4.",
        "4 for the parameter, 4 for its gradient, 8 for AdamW's two states. Each stage divides one more of these "
        "by the number of ranks: first states, then gradients, then parameters.",
        "Start with `weights, gradients, states = 4 * parameters, 4 * parameters, 8 * parameters`. `if stage >= "
        "1: states /= ranks`, and so on. Return the sum.",
    ),
)


def _stacks(random: Random) -> list[tuple[int, int, int, int]]:
    """Return ranks, blocks, micro-batches and a seed."""
    return [(ranks, random.randint(2, 4), times, random.randint(1, 10**6)) for ranks, times in ((2, 3), (3, 2), (2, 1))]


def judge_on_ranks(given: list, inputs: Sequence[Sequence[Any]], due: list) -> Verdict:
    """Return the verdict on what `tried.drive` tells of each rank, `due` being the same of the reference solution."""
    for (ranks, _, micro_batches, _), mine, right in zip(inputs, given, due, strict=True):
        for rank, (told, expected) in enumerate(zip(mine, right, strict=True)):
            faults = _unit_faults(told, expected, micro_batches)
            near = np.linalg.norm(np.subtract(told["gradients"], expected["gradients"]))
            if not faults and near > 1e-3 * np.linalg.norm(expected["gradients"]):
                faults["wrong"] = f"rank {rank}'s gradients are not those of one process that has all samples"
            if faults:
                where = f"with {ranks} ranks and micro-batches: {micro_batches}"
                return Verdict.of_faults("sharded_step", {kind: f"{where}, {said}" for kind, said in faults.items()})
    merit = "on 2 and 3 ranks gradients are those of one process, sent once per step, and weights come block by block"
    return Verdict.of_faults("sharded_step", {}, merit)


def _unit_faults(told: dict[str, float], right: dict[str, float], micro_batches: int) -> dict[str, str]:
    """Return what is wrong with the units and the exchanges of one rank."""
    faults: dict[str, str] = {}
    if told["sharded"] < 0.99:
        left = units.percent(1 - told["sharded"])
        faults["left_out"] = (
            f"{left} of the model is in no unit: each rank keeps it whole, and nobody averages its gradients"
        )
    elif told["largest"] > 1.01 * right["largest"]:
        sizes = [units.percent(told["largest"]), units.percent(right["largest"])]
        faults["root_only"] = (
            f"one collective moves {sizes[0]} of the model; with each block as a unit it is {sizes[1]}"
        )
    if told["exchanges"] > 1.5:
        times = units.number(told["exchanges"], 2)
        faults["synced_every_time"] = f"a step exchanges {times} times the model's gradients; once would do"
    elif told["exchanges"] < 0.5 and told["sharded"] > 0.99:
        faults["never_synced"] = "no gradients are exchanged: the last micro-batch's backward has to"
    elif micro_batches > 1 and abs(told["ratio"] - micro_batches) < 0.05 * micro_batches:
        faults["undivided"] = f"gradients are {units.number(told['ratio'])}× the right ones, as many as micro-batches"
    return faults


def _steps(file: str, *, size: str = "small", gpus: int = 0) -> list[Trial | Accumulation]:
    common: dict[str, Any] = {"gpus": gpus, "seeds": 1, "yours": file}
    return [
        Trial.sized(size, variants=("yours",), **common),
        Accumulation.sized(size, strategies=("fsdp_full",), times=(4,), **common),
    ]


def judge_run(run: Run) -> Verdict:
    """Return the verdict on a Trial run of the student's functions, or on their times in an Accumulation run."""
    if isinstance(run.plan, Trial):
        return verdict_of(symptoms(run).iloc[0].to_dict() | {"variant": "sharded_step"})
    row = accumulation(run).iloc[0]
    yours, ours, each = (units.seconds(row[f"step_ms_{name}"] / 1e3) for name in ("yours", "last", "every"))
    taken = f"{yours} with your functions, {ours} with the reference solution, and {each} with an exchange after each"
    merit = f"on {run.plan.workers_text}, a step of {row['micro_batches']:g} micro-batches takes {taken}"
    return Verdict.of_faults("sharded_step", {}, merit)


def say_the_order(verdict: Verdict) -> Verdict:
    """Return the verdict on an answer that raised; where torch refuses a unit below another one, it says so."""
    if "Invariant encountered" not in str(verdict):
        return verdict
    why_so = "a module below a unit has no parameters left for a unit of its own: the blocks come before the model"
    return replace(verdict, faults=verdict.faults | {"root_first": why_so})


_WORKER = "lessons.sharding.worker"
_REFERENCE = tuple(f"{_WORKER}.sharded.{name}" for name in ("shard_units", "add_gradients"))
_SHARDED_STEP = Exercise(
    "sharded_step",
    judge=judge_on_ranks,
    on_failure=say_the_order,
    functions=("shard_units", "add_gradients"),
    cases=Cases(
        _stacks,
        driver=f"{_WORKER}.tried",
        on_ranks=True,
        reference=_REFERENCE,
        may_import=(
            *("labkit.worker.collectives", "labkit.worker.gpt", "labkit.worker.strategies"),
            *(f"{_WORKER}.{name}" for name in ("sharded", "tried")),
        ),
        start_s=60.0,  # torch, and its FSDP
    ),
    trial=Launches(_steps, judge_run),
    grade=CORE,
    hints=(
        "All parameters of a unit are gathered together. What is gathered at once if the model is one unit? And which "
        "parameters does no block have?",
        "`fully_shard(module, mesh=mesh)` makes a unit of what is in no unit yet: so the blocks come first, then the "
        "model. `model.set_requires_gradient_sync(…)` says whether the next backward exchanges. Each loss counts one "
        "of several micro-batches.",
        "`for block in model.blocks: fully_shard(block, mesh=mesh)`, then `fully_shard(model, mesh=mesh)`. For each "
        "micro-batch: `model.set_requires_gradient_sync(number == len(micro_batches) - 1)`, then "
        "`(model(tokens, targets) / len(micro_batches)).backward()`.",
    ),
    solution=_REFERENCE,
)

check = Exercises("sharding", _SHARDED_STEP, _HELD_BYTES)
hint, solution, attempts, yours = check.hint, check.solution, check.attempts, check.yours

_RIGHT = """
for block in model.blocks:
    fully_shard(block, mesh)
fully_shard(model, mesh)

def step(micro_batches):
    count = len(micro_batches)
    for number, batch in enumerate(micro_batches):
        last = number == count - 1
        model.set_requires_gradient_sync(last)
        loss = model(*batch) / count
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
SYMPTOMS = {
    "root_only": "the blocks are never wrapped: all parameters are gathered together",
    "synced_every_time": "gradients are exchanged after every micro-batch, though one exchange per step would do",
    "undivided": "the micro-batches' losses are added up and never divided by their number",
}
_CODES = with_bugs(
    _RIGHT,
    {
        "root_only": [("for block in model.blocks:\n    fully_shard(block, mesh)\n", "")],
        "synced_every_time": [("set_requires_gradient_sync(last)", "set_requires_gradient_sync(True)")],
        "undivided": [("model(*batch) / count", "model(*batch)")],
    },
)


def verdict_of(row: dict[str, Any]) -> Verdict:
    """Return the verdict on one variant's symptoms, a row of `symptoms`."""
    faults, count = {}, row["micro_batches"]
    if abs(row["update_ratio"] - count) < 0.05 * count:
        faults["undivided"] = (
            f"the update is {units.number(row['update_ratio'])}× the right one, as many as micro-batches"
        )
    elif row["update_error"] > 1e-3:
        faults["wrong"] = "the weights do not change as in one process"
    if row["exchanges"] > 1.5:
        times = units.number(row["exchanges"], 2)
        faults["synced_every_time"] = f"a step exchanges {times} times the model's gradients; once would do"
    if row["largest_share"] > 0.99:
        faults["root_only"] = "one collective moves all parameters: the blocks were never wrapped on their own"
    merit = "updates are one process's, gradients go once, parameters come block by block"
    return Verdict.of_faults(row["variant"], faults, merit)


suspects, diagnose, show_suspects = line_up("sharding", SYMPTOMS, symptoms, verdict_of, _CODES)
