"""Check what the student wrote, and name the bug in a sharded training that was tried beside one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from labkit.course.exercises import CORE, WARM_UP, Exercise, Exercises
from labkit.course.judging import Mistake, close, is_number, judge_of
from labkit.course.lineup import line_up
from labkit.course.verdict import RIGHT, WRONG, Verdict
from labkit.story import units
from lessons.sharding.hints import HINTS
from lessons.sharding.listings import CODES
from lessons.sharding.tables.training import symptoms

_SYMPTOMS = {
    "root_only": "the blocks are never wrapped: all parameters are gathered together",
    "synced_every_time": "gradients are exchanged after every micro-batch, though one exchange per step would do",
    "undivided": "the micro-batches' losses are added up and never divided by their number",
}
SETTINGS = tuple(
    (parameters, ranks, stage)
    for parameters, ranks in ((774_030_080, 2), (1_000_000, 8), (7_000_003, 3))
    for stage in range(4)
)
_SHARDED = (0, 8, 12, 16)  # bytes of 16 per parameter that a stage shards: none, states, + gradients, + parameters
_MIXED = (0, 12, 14, 16)  # the same with weights and gradients in 2 bytes, and a third state: weights in float32
_WORDS = ("nothing", "the optimizer's states", "states and gradients", "states, gradients and parameters")
_CLOSE = 0.01


def held_bytes(parameters: int, ranks: int, stage: int) -> float:
    """Return the bytes that a rank holds of parameters, gradients and AdamW's states in float32 under a ZeRO stage."""
    return parameters * (16 - _SHARDED[stage] + _SHARDED[stage] / ranks)


_MISTAKES: tuple[tuple[str, Callable[[int, int, int], float], str], ...] = (
    ("ahead", lambda p, n, stage: held_bytes(p, n, min(stage + 1, 3)), "that is what the next stage holds"),
    (
        "numbers",
        lambda p, n, stage: held_bytes(p, n, stage) / 4,
        "that counts numbers, not bytes: in float32 each number takes 4",
    ),
    (
        "one_state",
        lambda p, n, stage: held_bytes(p, n, stage) - 4 * p / (n if stage else 1),
        "AdamW keeps two states for each parameter",
    ),
    (
        "mixed",
        lambda p, n, stage: p * (16 - _MIXED[stage] + _MIXED[stage] / n),
        "in float32 a parameter and its gradient take 4 bytes each; 2 + 2 + 12 are those of mixed precision",
    ),
    ("together", lambda p, n, stage: n * held_bytes(p, n, stage), "that is what all ranks hold together"),
)  # kind, bytes for (parameters, ranks, stage), what is wrong


def judge(given: list, settings: Sequence[tuple[int, int, int]] = SETTINGS) -> Verdict:
    """Return the verdict on bytes a rank holds, one number per setting (parameters, ranks, stage)."""
    faults: dict[str, str] = {}
    pairs = [*zip(settings, given, strict=True)]
    made = next(((kind, why) for kind, value, why in _MISTAKES if _same(pairs, value)), None)
    behind = [stage for stage in (1, 2, 3) if _same(pairs, lambda p, n, s: held_bytes(p, n, s - 1), stage)]
    for (parameters, ranks, stage), value in pairs:
        where = f"for {units.number(parameters / 1e6)} million parameters on {ranks} ranks, stage {stage}"
        right = held_bytes(parameters, ranks, stage)
        if not is_number(value):
            why = ": is a `return` missing?" if value is None else ""
            faults.setdefault("form", f"{where}, it gives {value!r:.60}, not a number of bytes{why}")
        elif close(value, right, _CLOSE):
            continue
        elif made:
            faults.setdefault(made[0], f"{where}, it gives {units.size(value)}, not {units.size(right)}: {made[1]}")
        elif stage in behind:
            faults.setdefault(
                "stage", f"{where}, it gives what stage {stage - 1} holds; stage {stage} shards {_WORDS[stage]}"
            )
        elif value < 16 * parameters / ranks * (1 - _CLOSE):
            faults.setdefault(
                "impossible",
                f"{where}, it gives {units.size(value)}; even in stage 3, where a rank holds 1/{ranks} of all "
                f"bytes, it holds {units.size(16 * parameters / ranks)}",
            )
        else:
            difference = f"it gives {units.size(value)}, not {units.size(right)}"
            asked = f"which of the four parts does stage {stage} shard?"
            if stage == 0:
                asked = "stage 0 shards nothing, so add the parameters, the gradients and both states"
            faults.setdefault("bytes", f"{where}, {difference}: {asked}")
    merits = ("every stage holds the right bytes",)
    return Verdict("held_bytes", WRONG if faults else RIGHT, faults, () if faults else merits)


def _same(given: list[tuple], value_of: Callable[[int, int, int], float], only: int | None = None) -> bool:
    """Say whether all numbers, or all of the stage `only`, are those of one mistake: a single one may be by chance."""
    pairs = [pair for pair in given if only in (None, pair[0][2])]
    return all(close(value, value_of(*setting), _CLOSE) for setting, value in pairs)


def verdict_of(row: dict[str, Any]) -> Verdict:
    """Return the verdict on one variant's symptoms."""
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
    merits = () if faults else ("updates are one process's, gradients go once, parameters come block by block",)
    return Verdict(row["variant"], WRONG if faults else RIGHT, faults, merits)


_BILLION = 10**9
CLUSTERS = (
    (_BILLION, 4, 24 * _BILLION, 4 * _BILLION),
    (_BILLION, 4, 18 * _BILLION, 4 * _BILLION),
    (_BILLION, 4, 12 * _BILLION, 4 * _BILLION),
    (_BILLION, 4, 9 * _BILLION, 4 * _BILLION),
    (_BILLION, 4, 7 * _BILLION, 4 * _BILLION),
    (_BILLION, 1, 15 * _BILLION, 0),
    (_BILLION, 8, 20 * _BILLION, 4 * _BILLION),
    (7 * _BILLION, 16, 40 * _BILLION, 20 * _BILLION),
)  # parameters, ranks, bytes of a GPU, bytes of activations


def _stages(parameters: int, ranks: int, room: float, least: bool = True) -> int | None:
    """Return the least (or the largest) stage whose states fit the room; None where none does."""
    fitting = [stage for stage in range(4) if held_bytes(parameters, ranks, stage) <= room]
    return (fitting[0] if least else fitting[-1]) if fitting else None


judge_stage = judge_of(
    "smallest_stage",
    CLUSTERS,
    lambda p, n, gpu, kept: _stages(p, n, gpu - kept),
    (
        Mistake("largest", lambda p, n, gpu, kept: _stages(p, n, gpu - kept, least=False), "a smaller stage fits, too"),
        Mistake("no_activations", lambda p, n, gpu, kept: _stages(p, n, gpu), "the activations need room, too"),
        Mistake(
            "shared_activations",
            lambda p, n, gpu, kept: _stages(p, n, gpu - kept / n),
            "ZeRO shards no activations: every rank keeps those of its own samples",
        ),
        Mistake(
            "always",
            lambda p, n, gpu, kept: 3 if (stage := _stages(p, n, gpu - kept)) is None else stage,
            "not even stage 3 fits: return None",
        ),
        Mistake(
            "below", lambda p, n, gpu, kept: _stages(p, n, gpu - kept - 1), "what fills the GPU exactly still fits"
        ),
    ),
    asked="a stage from 0 to 3, or None",
    rule="take the least stage whose parameters, gradients, states and activations together fit the GPU",
    merit="the least stage that fits is found, and None where none does",
)

check = Exercises(
    "sharding",
    Exercise("held_bytes", SETTINGS, judge, hints=HINTS["held_bytes"], grade=WARM_UP),
    Exercise("smallest_stage", CLUSTERS, judge_stage, hints=HINTS["smallest_stage"], grade=CORE),
)
hint, solution, attempts = check.hint, check.solution, check.attempts
suspects, diagnose, show_suspects = line_up(
    "sharding", _SYMPTOMS, lambda run: symptoms(run).to_dict("records"), verdict_of, CODES
)
