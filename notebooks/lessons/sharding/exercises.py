"""The exercises of lab 05: cases, judge and hints of each; then the bugs of sharded trainings to name."""

from __future__ import annotations

from math import ceil
from random import Random
from typing import Any

from IPython.display import HTML

from labkit.course.exercises import CORE, WARM_UP, Cases, Exercises, compared
from labkit.course.judging import Mistake, float32_mistakes
from labkit.course.lineup import line_up, why, with_bugs
from labkit.course.verdict import Verdict
from labkit.story import units
from lessons.sharding.tables import symptoms

_SHARDED = (0, 8, 12, 16)  # bytes of 16 per parameter that a stage shards: none, states, + gradients, + parameters
_MIXED = (0, 12, 14, 16)  # the same with weights and gradients in 2 bytes, and a third state: weights in float32
_BILLION = 10**9


def held_bytes(parameters: int, ranks: int, stage: int) -> float:
    """Return the bytes that a rank holds of parameters, gradients and AdamW's states in float32 under a ZeRO stage."""
    return parameters * (16 - _SHARDED[stage] + _SHARDED[stage] / ranks)


def _settings(random: Random) -> list:
    """Return three models on some ranks, each at every stage."""
    models = [(random.randint(1, 1000) * 10**6, random.randint(2, 16)) for _ in range(3)]
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


def _clusters(random: Random) -> list:
    """Return clusters in which every stage is the least that fits; one exactly, one not at all.

    Each is parameters, ranks, bytes of a GPU, bytes of activations.
    """
    drawn = []
    for stage in range(4):
        parameters, ranks, kept = random.randint(1, 9) * _BILLION, random.randint(2, 16), random.randint(1, 20)
        room = ceil(held_bytes(parameters, ranks, stage) / 1e8) * 10**8
        drawn.append((parameters, ranks, room + kept * _BILLION, kept * _BILLION))
    parameters, ranks = random.randint(1, 9) * _BILLION, random.choice((2, 4, 8))
    drawn.append((parameters, ranks, int(held_bytes(parameters, ranks, 2)) + _BILLION, _BILLION))
    drawn.append((parameters, ranks, int(0.9 * held_bytes(parameters, ranks, 3)), 0))
    kept = 6 * parameters * (ranks - 1) // ranks  # whole, shared by the ranks or left out: three different stages
    drawn.append((parameters, ranks, int(held_bytes(parameters, ranks, 1)) + kept // (2 * ranks), kept))
    random.shuffle(drawn)
    return drawn


def _stage(parameters: int, ranks: int, room: float, least: bool = True) -> int | None:
    """Return the least (or the largest) stage whose states fit the room; None where none does."""
    fitting = [stage for stage in range(4) if held_bytes(parameters, ranks, stage) <= room]
    return (fitting[0] if least else fitting[-1]) if fitting else None


_SMALLEST_STAGE = compared(
    "smallest_stage",
    lambda p, n, gpu, kept: _stage(p, n, gpu - kept),
    (
        Mistake("largest", lambda p, n, gpu, kept: _stage(p, n, gpu - kept, least=False), "a smaller stage fits, too"),
        Mistake("no_activations", lambda p, n, gpu, kept: _stage(p, n, gpu), "the activations need room, too"),
        Mistake(
            "shared_activations",
            lambda p, n, gpu, kept: _stage(p, n, gpu - kept / n),
            "ZeRO shards no activations: every rank keeps those of its own samples",
        ),
        Mistake(
            "always",
            lambda p, n, gpu, kept: 3 if (stage := _stage(p, n, gpu - kept)) is None else stage,
            "not even stage 3 fits: return None",
        ),
        Mistake("below", lambda p, n, gpu, kept: _stage(p, n, gpu - kept - 1), "what fills the GPU exactly still fits"),
    ),
    result_form="a stage from 0 to 3, or None",
    rule="take the least stage whose parameters, gradients, states and activations together fit the GPU",
    merit="the least stage that fits is found, and None where none does",
    cases=Cases(_clusters),
    grade=CORE,
    hints=(
        "Use your `held_bytes` as a start. What else is in a GPU's memory besides the states?",
        "Go through the stages from 0 to 3. Return the first one whose bytes, with the activations, are at most "
        "the GPU's. No stage shards the activations.",
        "Stage s keeps `16 - sharded[s] + sharded[s] / ranks` bytes per parameter, with `sharded = [0, 8, 12, "
        "16]`. Compare `that * parameters + activation_bytes` with `gpu_bytes`. After the loop, return None.",
    ),
)

check = Exercises("sharding", _HELD_BYTES, _SMALLEST_STAGE)
hint, solution, attempts = check.hint, check.solution, check.attempts

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


def why_fused() -> HTML:
    """Ask why fused attention makes the step so much faster."""
    return why(
        "Fused attention computes the same numbers. Why is the recorded step so much faster with it?",
        (
            "It never writes the scores to memory",
            "They are a number per pair of tokens: memory, not arithmetic, was slow.",
        ),
        ("It multiplies in lower precision", "The rung before already multiplies in bfloat16."),
        ("It needs fewer multiplications", "Backward even computes the scores a second time."),
    )
