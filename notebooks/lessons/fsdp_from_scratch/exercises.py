"""The exercises of lab 15: what is whole together, a unit's backward, the length of sharded gradients, and the bug."""

from __future__ import annotations

from itertools import cycle
from random import Random
from typing import TYPE_CHECKING, Any

from IPython.display import HTML

from labkit.course.exercises import CORE, STRETCH, WARM_UP, Cases, Exercise, Exercises, Trial, compared
from labkit.course.judging import Mistake
from labkit.course.lineup import line_up, why, with_bugs
from labkit.course.verdict import Verdict
from labkit.story import units
from lessons.fsdp_from_scratch.judged import judge_backward, judge_clip
from lessons.fsdp_from_scratch.plan import CASES, Equality, Steps
from lessons.fsdp_from_scratch.tables import cases as case_table
from lessons.fsdp_from_scratch.tables import steps, symptoms
from lessons.fsdp_from_scratch.theory import padded, whole_bytes

if TYPE_CHECKING:
    from labkit.engine.run import Run

_WORKER = "lessons.fsdp_from_scratch.worker"
NUMBER_OF_RANKS = (2, 3, 4)
_CLIPPED = ("plain", "tied", "frozen", "frozen_embedding", "unused")
_LENGTHS = (0.1, 0.5, 1000.0)  # at most so long: the gradients are longer than the first two


def _shown_backward() -> list[tuple]:
    """Return ranks, hole, case, seed and length of what the notebook tries: every case, on 2, 3 or 4 ranks."""
    return [(ranks, "backward", case, 0, 0.5) for ranks, case in zip(cycle(NUMBER_OF_RANKS), CASES)]


def _hidden_backward(random: Random) -> list[tuple]:
    chosen = random.sample(CASES, 6)
    return [(random.choice(NUMBER_OF_RANKS), "backward", case, random.randint(1, 10**6), 0.5) for case in chosen]


def _shown_clip() -> list[tuple]:
    settings = zip(cycle(NUMBER_OF_RANKS), _CLIPPED, cycle(_LENGTHS))
    return [(ranks, "clip", case, 0, most) for ranks, case, most in settings]


def _hidden_clip(random: Random) -> list[tuple]:
    return [
        (random.choice(NUMBER_OF_RANKS), "clip", random.choice(_CLIPPED), random.randint(1, 10**6), most)
        for most in _LENGTHS
    ]


def _trained_with(file: str, *, size: str = "small", gpus: int = 0) -> list[Steps]:
    knobs: dict[str, Any] = {"units": ("block",), "prefetches": (1,), "precisions": ("bfloat16",)}
    return [Steps.sized(size, gpus=gpus, seeds=1, backward=file, **knobs)]


def judge_steps(run: Run) -> Verdict:
    """Return the verdict on a unit's backward whose steps were timed beside the reference solution's and torch's."""
    table = steps(run).set_index("strategy")
    if (failed := table[table["status"] != "ok"]["status"]).size:
        return Verdict.of_faults(
            "backward", {"failed": f"on {run.plan.workers_text} a step ends with {failed.iloc[0]}"}
        )
    yours, ours, torchs = (units.seconds(table.loc[name, "step_ms"] / 1e3) for name in ("yours", "ours", "torch"))
    times = f"{yours} with your methods, {ours} with the reference solution, and {torchs} with torch's fully_shard"
    return Verdict.of_faults("backward", {}, f"on {run.plan.workers_text} a training step takes {times}")


def _clipped_with(file: str, *, size: str = "small", gpus: int = 0) -> list[Equality]:
    return [Equality.sized(size, gpus=gpus, seeds=1, cases=_CLIPPED, clip=file)]


def judge_clipped(run: Run) -> Verdict:
    """Return the verdict on a `clip` that trained beside one process."""
    table = case_table(run)
    wrong = table.loc[~table["right"].astype(bool), "case"]
    faults = {"trained": f"on {run.plan.workers_text} training is not that of one process: {', '.join(wrong)}"}
    return Verdict.of_faults(
        "clip", faults if len(wrong) else {}, f"on {run.plan.workers_text} it trains as one process does"
    )


_PACKED = ("tried", "units", "probe")


def _method(name: str, judge: Any, shown: list, hidden: Any, reference: tuple[str, ...], **more: Any) -> Exercise:
    """Return the exercise to write methods of the classes."""
    cases = Cases(
        hidden,
        driver=f"{_WORKER}.tried",
        on_ranks=True,
        reference=tuple(f"{_WORKER}.units.{method}" for method in reference),
        may_import=("labkit.worker.collectives", *(f"{_WORKER}.{module}" for module in _PACKED)),
        start_s=40.0,  # torch
    )
    return Exercise(name, shown, judge, solution=cases.reference, cases=cases, **more)


SIZES = (
    ([100, 100, 100, 100], 5, 1, 1),
    ([10, 10, 10], 3, 0, 0),
    ([7, 9, 5, 8], 2, 3, 1),
    ([12, 14, 16, 18], 2, 0, 2),
    ([1000, 10, 10, 10], 8, 0, 1),
)  # elements of each unit, ranks, the unit that computes, units ahead


def _sizes(random: Random) -> list:
    """Return units of equal and of different sizes that divide among the ranks or not, first, inner and last ones."""
    cases = []
    for ranks in (2, 3, 4, 8):
        for ahead in (0, 1, 2):
            sizes = [random.randint(5, 500) for _ in range(random.randint(4, 7))]
            cases += [(sizes, ranks, number, ahead) for number in (0, len(sizes) // 2, len(sizes) - 1)]
    return cases


def _without_padding(sizes: list[int], ranks: int, number: int, prefetch: int) -> float:
    return 4 * sum(sizes) / ranks + 2 * sum(sizes[number : number + prefetch + 1])


_WHOLE_BYTES = compared(
    "whole_bytes",
    whole_bytes,
    (
        Mistake("unpadded", _without_padding, "a unit is padded until it divides among the ranks"),
        Mistake(
            "no_prefetch",
            lambda sizes, ranks, number, prefetch: whole_bytes(sizes, ranks, number, 0),
            "the next units are gathered ahead: they are whole, too",
        ),
        Mistake(
            "all_float32",
            lambda sizes, ranks, number, prefetch: (
                2 * whole_bytes(sizes, ranks, number, prefetch) - whole_bytes(sizes, ranks, len(sizes), 0)
            ),
            "gathered weights are bfloat16, 2 bytes each; only the shards have 4",
        ),
        Mistake(
            "no_shards",
            lambda sizes, ranks, number, prefetch: (
                whole_bytes(sizes, ranks, number, prefetch) - whole_bytes(sizes, ranks, len(sizes), 0)
            ),
            "the shards of all units are there all the time",
        ),
        Mistake(
            "no_shard_beside",
            lambda sizes, ranks, number, prefetch: (
                whole_bytes(sizes, ranks, number, prefetch)
                - 4 * sum(padded(size, ranks) for size in sizes[number : number + prefetch + 1]) // ranks
            ),
            "a unit that is whole keeps its shard beside it: `whole` is another tensor",
        ),
        Mistake(
            "all_whole",
            lambda sizes, ranks, number, prefetch: whole_bytes(sizes, ranks, 0, len(sizes)),
            "units that do not compute, and are not next, are not whole",
        ),
        Mistake(
            "both_sides",
            lambda sizes, ranks, number, prefetch: whole_bytes(
                sizes, ranks, max(0, number - prefetch), number - max(0, number - prefetch) + prefetch
            ),
            "in forward only the units that come next are gathered ahead",
        ),
    ),
    result_form="a number of bytes",
    rule="float32 shards of all units, and in bfloat16 the unit that computes and those gathered ahead, all padded",
    merit="shards and gathered units are counted, with their padding",
    inputs=SIZES,
    grade=WARM_UP,
    cases=Cases(_sizes),
    hints=(
        "Two things are there: what this rank always holds of every unit, and the units that are whole just now.",
        "Pad each unit to a multiple of `ranks`. Of every unit a rank holds one of `ranks` parts, 4 bytes a number. "
        "Whole are unit `number` and the `prefetch` units after it, as far as there are any, 2 bytes a number.",
        "`padded = [size + -size % ranks for size in sizes]`; shards: `4 * sum(padded) // ranks`; whole: "
        "`2 * sum(padded[number : number + prefetch + 1])`.",
    ),
)

check = Exercises(
    "fsdp_from_scratch",
    _method(
        "backward",
        judge_backward,
        _shown_backward(),
        _hidden_backward,
        ("FullyShardedUnit.backward_begins", "FullyShardedUnit.backward_ends"),
        functions=("backward_begins", "backward_ends"),
        trial=Trial(_trained_with, judge_steps),
        grade=CORE,
        hints=(
            "After forward the weights were let go. What does a matrix product's backward need? And when backward has "
            "ended, which of the gradients does a rank need?",
            "`backward_begins` gathers. `backward_ends`: for each of `self.trained`, a reduce-scatter of "
            "`flat.gradients()` gives each rank its part, as long as `flat.shard`; divide by the ranks; "
            "`flat.add(part)`. Then let the whole weights go.",
            "`whole = flat.gradients() / flat.ranks`; `part = whole.new_empty(flat.shard.numel())`; "
            "`dist.reduce_scatter_tensor(part, whole, group=flat.group)`; `flat.add(part)`. At the end `self.free()`.",
        ),
    ),
    _WHOLE_BYTES,
    _method(
        "clip",
        judge_clip,
        _shown_clip(),
        _hidden_clip,
        ("FullySharded.clip",),
        trial=Trial(_clipped_with, judge_clipped),
        grade=STRETCH,
        hints=(
            "The square of the length is a sum over all numbers. Each rank has some of them, and none is there twice.",
            "Add the squares of this rank's gradients to one number, add that over the ranks, take the root. The "
            "factor is `most / length`, but never more than 1.",
            "`square = sum(gradient.square().sum() for gradient in gradients)`; `dist.all_reduce(square, "
            "group=self.group)`; `length = square.sqrt()`; for each: `gradient *= (most / length).clamp(max=1)`.",
        ),
    ),
    imported_as="fsdp",
)
hint, solution, attempts, yours = check.hint, check.solution, check.attempts, check.yours

SYMPTOMS = {  # what is wrong with each of the units that train with a bug
    "averaged_twice": "gradients are divided by the number of ranks before they are averaged",
    "not_gathered": "backward finds only this rank's own part of the weights",
    "padding_counts": "the padding of the joined gradients is not cleared",
}
_RIGHT = """
def backward_begins(unit):
    unit.whole.resize(unit.padded_size)
    all_gather(unit.whole, unit.shard)

def backward_ends(unit):
    gradients = zeros(unit.padded_size)
    copy(unit.gradients, into=gradients)
    part = empty(unit.padded_size // ranks)
    reduce_scatter(part, gradients, op=AVG)
    unit.shard.grad = part
    unit.whole.resize(0)
"""
_CODES = with_bugs(
    _RIGHT,
    {
        "averaged_twice": [("    reduce_scatter(", "    gradients /= ranks\n    reduce_scatter(")],
        "not_gathered": [("all_gather(unit.whole, unit.shard)", "unit.whole.part(rank).copy(unit.shard)")],
        "padding_counts": [("gradients = zeros(", "gradients = empty(")],
    },
)
_SEEN, _ROUNDING = 1e-3, 1e-5  # relative


def verdict_of(row: dict) -> Verdict:
    """Return the verdict on one variant's symptoms, with a sentence per fault."""
    faults: dict[str, str] = {}
    length, weights = row["norm_error"], row["weight_error"]
    if length > _SEEN and weights < _ROUNDING:
        said = (
            f"the gradients' length is {units.percent(length)} off, and the weights are right: clipping hides a factor"
        )
        faults["averaged_twice"] = said
    elif length > _LONG:
        faults["padding_counts"] = (
            f"the gradients are {units.percent(length)} too long: something counts that is no gradient"
        )
    elif weights > _SEEN or length > _SEEN:
        faults["not_gathered"] = f"length ({units.percent(length)}) and weights are off: gradients of other weights"
    return Verdict.of_faults(row["variant"], faults, "losses, lengths and weights are those of one process")


_LONG = 0.2  # longer than other weights' gradients are
suspects, diagnose, show_suspects = line_up("fsdp_from_scratch", SYMPTOMS, symptoms, verdict_of, _CODES)


def why_not_larger_units() -> HTML:
    """Ask why larger units do not hide more."""
    return why(
        "By the formula the size of a unit does not decide whether its gathering hides. Why?",
        ("Bytes and FLOP grow alike", "A weight costs its bytes on the link and 2 FLOP per token: the size cancels."),
        (
            "All units have the same size",
            "Their sizes may differ: the outermost unit holds the embedding. The ratio is the same for each.",
        ),
        (
            "NVLink is fast enough for all",
            "A slower link needs more tokens, but the same number for units of every size.",
        ),
    )
