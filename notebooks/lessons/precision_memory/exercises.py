"""The exercises of lab 07: the peak of a step, measured here beside the student's; checkpoints; loops with a bug."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from IPython.display import HTML

from labkit.course.answer_launch import call_answer, call_text
from labkit.course.exercises import CORE, STRETCH, Cases, Exercise, Exercises
from labkit.course.judging import is_close, is_number, not_the_form
from labkit.course.lineup import line_up, why
from labkit.course.source import code_of
from labkit.course.verdict import Verdict
from labkit.launching import launch
from labkit.story import units
from labkit.theory.sizes import MIB
from lessons.precision_memory.bugs import SYMPTOMS
from lessons.precision_memory.plan import Hidden
from lessons.precision_memory.tables import faults, symptoms
from lessons.precision_memory.theory.memory import Block, best_placement, checkpointed_peak, recomputed_ms

# vocabulary, hidden, inner, layers, heads, samples, sequence, precision, phase: states, activations, logits, copies of
# weights or a first step without optimizer states decide, in turn
SHOWN = (
    (1000, 192, 768, 3, 4, 1, 16, "float32", "first"),
    (1000, 192, 768, 3, 4, 1, 16, "float32", "steady"),
    (500, 96, 384, 6, 4, 4, 96, "float32", "steady"),
    (500, 96, 384, 6, 4, 4, 96, "bfloat16", "steady"),
    (6000, 64, 128, 2, 2, 4, 64, "float32", "steady"),
    (800, 160, 640, 4, 4, 2, 76, "bfloat16", "steady"),
    (400, 96, 384, 4, 4, 2, 96, "float32", "first"),
)
# Each student gets some of these, so that a grader measures each of them once.
_HIDDEN = (
    (1200, 160, 640, 3, 4, 1, 24, "float32", "first"),
    (1200, 160, 640, 3, 4, 1, 24, "float32", "steady"),
    (600, 128, 512, 5, 4, 4, 80, "float32", "steady"),
    (600, 128, 512, 5, 4, 4, 80, "bfloat16", "steady"),
    (5000, 64, 192, 2, 2, 4, 72, "float32", "steady"),
    (900, 144, 576, 4, 4, 2, 66, "bfloat16", "steady"),
    (300, 64, 256, 4, 4, 2, 64, "float32", "first"),
)
_ALLOWED = 0.10  # of the measured peak


def check_peaks(exercise: str, *, size: str = "auto", gpus: int = 0, patience_s: float = 20.0) -> Verdict:
    """Compare the student's `peak_bytes` with peaks that are measured here, of the shown configurations."""
    given = call_answer(f"precision_memory.{exercise}", [list(configuration) for configuration in SHOWN], patience_s)
    if isinstance(given, Verdict):
        return given
    run = launch(Hidden.sized(size, gpus=gpus, configurations=SHOWN))
    verdict = judge_peaks(given, list(run.rows["peak_mib"] * MIB), run.plan.device)
    return replace(verdict, printed=given.printed)


def judge_peaks(
    returned: list, measured: list[float], device: str = "cuda", configurations: Sequence[Sequence[Any]] = SHOWN
) -> Verdict:
    """Return the verdict on peaks in bytes beside the measured ones, one per configuration."""
    faults: dict[str, str] = {}
    for configuration, given, peak in zip(configurations, returned, measured, strict=True):
        call = call_text("peak_bytes", list(configuration))
        if not is_number(given):
            faults.setdefault("form", f"{call} gives {not_the_form(given, 'a number of bytes')}")
        elif not is_close(given, peak, _ALLOWED):
            peaks = f"{units.size(given)}, and the measured peak is {units.size(peak)}"
            kind = f"{configuration[-2]}, {configuration[-1]}{', too much' if given > peak else ''}"
            faults.setdefault(kind, f"{call} gives {peaks}{_missing_parts(configuration, peak - given)}")
    counter = "the allocator" if device == "cuda" else "the count of storages (a CPU has no such allocator)"
    merit = f"all {len(measured)} configurations are within {units.percent(_ALLOWED)} of {counter}"
    return Verdict.of_faults("peak_bytes", faults, merit)


def _missing_parts(configuration: Sequence[Any], missing: float) -> str:
    """Return everything that takes as many bytes as are missing: a size does not say which of these it is."""
    vocabulary, hidden, inner, layers, _, samples, sequence, precision, phase = configuration
    weights = layers * (4 * hidden**2 + 3 * hidden * inner) + 2 * vocabulary * hidden
    logits = samples * sequence * vocabulary
    parts = {
        "AdamW's two states": 8 * weights,
        "the weights, or their gradients, or one of AdamW's two states": 4 * weights,
        "the logits in float32": 4 * logits,
        "two arrays as large as the logits in float32": 8 * logits,
        "three arrays as large as the logits in float32": 12 * logits,
    }
    parts |= {"the bfloat16 copies of the weights": 2 * weights} if precision == "bfloat16" else {}
    if alike := [part for part, size in parts.items() if is_close(missing, size, 0.15)]:
        return f": what is missing is as much as {', or '.join(alike)}"
    if missing < 0 and phase == "first":
        return ": in the first step AdamW has no states yet while the activations are there"
    return ""


def _configurations(random: Random) -> list:
    return [_HIDDEN[number] for number in sorted(random.sample(range(len(_HIDDEN)), 4))]


@functools.cache
def _measured_peaks() -> tuple[dict[tuple, float], str]:
    """Return the measured peaks of all configurations in bytes, and where they were measured."""
    every = (*SHOWN, *_HIDDEN)
    run = launch(Hidden.sized("auto", configurations=every), progress=False)
    return dict(zip(every, run.rows["peak_mib"] * MIB, strict=True)), run.plan.device


def _judge_hidden_peaks(given: list, inputs: list) -> Verdict:
    peaks, device = _measured_peaks()
    configurations = [tuple(configuration) for configuration in inputs]
    return judge_peaks(given, [peaks[configuration] for configuration in configurations], device, configurations)


def _placements(random: Random) -> list:
    """Return blocks, (MiB kept, MiB of the input, ms) each, and budgets in MiB that some placement keeps."""
    drawn = []
    for _ in range(6):
        blocks = []
        for _ in range(random.randint(4, 6)):
            kept_mib = random.randint(6, 20)
            input_mib, forward_ms = random.randint(1, kept_mib // 2), random.randint(1, 9)
            blocks.append([float(kept_mib), float(input_mib), float(forward_ms)])
        chosen = {number for number in range(len(blocks)) if random.random() < 0.6}
        drawn.append((blocks, checkpointed_peak([Block(*block) for block in blocks], chosen)))
    return drawn


# Whoever takes a block's input off, when it is computed again, fails here.
_NARROW = [[19.0, 2.0, 4.0], [7.0, 5.0, 6.0], [9.0, 1.0, 1.0], [14.0, 4.0, 6.0], [12.0, 1.0, 7.0]]


def judge_placement(given: list, inputs: Sequence[Any]) -> Verdict:
    """Return the verdict on placements: for each list of blocks and its budget the numbers of those to checkpoint."""
    faults: dict[str, str] = {}
    for chosen, (blocks, budget) in zip(given, inputs, strict=True):
        if fault := _placement_fault(chosen, [Block(*block) for block in blocks], budget):
            faults.setdefault(fault[0], f"{call_text('placement', [blocks, budget])} gives {fault[1]}")
    merit = "every placement is within its budget, and no other one takes less time"
    return Verdict.of_faults("placement", faults, merit)


def _placement_fault(given: Any, blocks: list[Block], budget: float) -> tuple[str, str] | None:
    if not isinstance(given, list) or not all(type(number) is int for number in given):
        return "form", not_the_form(given, "a list of block numbers")
    if len(set(given)) < len(given) or not all(0 <= number < len(blocks) for number in given):
        return "bounds", f"{given}, which has a block twice, or one that is not there"
    peak = checkpointed_peak(blocks, set(given))
    if peak > budget:
        held = sum(block.input_mib if at in given else block.kept_mib for at, block in enumerate(blocks))
        again = " while a block is computed again, because that block then keeps all" if held <= budget else ""
        return "budget", f"{given}, whose peak is {peak:g} MiB{again}; the budget is {budget:g} MiB"
    best = best_placement(blocks, budget)
    if best is not None and recomputed_ms(blocks, set(given)) > best[1]:
        return "time", f"{given}, which adds {recomputed_ms(blocks, set(given)):g} ms; {best[1]:g} ms are enough"
    return None


check = Exercises(
    "precision_memory",
    Exercise(
        "peak_bytes",
        SHOWN,
        check=check_peaks,
        grade=CORE,
        cases=Cases(_configurations, _judge_hidden_peaks, may_import=("labkit.theory.transformer.activations",)),
        hints=(
            "There are two moments that can be the fullest: the loss, at the end of forward, and the optimizer's "
            "update. What is in memory at each of them?",
            "At the loss: weights, optimizer states if there was a step before, all activations, copies of the weights "
            "under autocast, and what the loss needs beside its logits. At the update: weights, gradients and states. "
            "Return the larger one.",
            "`matrices = layers * (4 * hidden**2 + 3 * hidden * inner) + hidden * vocabulary`, and the embedding "
            "comes on top. At the update there are 16 bytes per parameter. At the loss: 4 per parameter, 8 more in a "
            "steady step, 2 per element of the matrices for bfloat16 copies, the activations, and `8 * tokens * "
            "vocabulary`.",
        ),
    ),
    Exercise(
        "placement",
        [(_NARROW, 34.0), *_placements(Random(0))],
        judge=judge_placement,
        grade=STRETCH,
        cases=Cases(_placements),
        hints=(
            "Compute the peak of one placement by hand. In backward, the last block comes first; a checkpointed block "
            "is computed again and then holds everything.",
            "Write a function for the peak of a set of blocks. Then try all sets: there are 2 to the number of "
            "blocks. Of those within the budget, take the one with least time.",
            "`held` starts as the sum of inputs (checkpointed) and kept MiB (others); this is the first peak. For each "
            "block from the last: if it is checkpointed, `held + kept` is a possible peak, and then `held -= input`; "
            "otherwise `held -= kept`. `itertools.combinations` gives the sets.",
        ),
    ),
)
hint, solution, attempts = check.hint, check.solution, check.attempts


def verdict_of(row: dict) -> Verdict:
    """Return the verdict on one loop's symptoms: a sentence per fault."""
    growth, after, peak = (units.gib(row[name] / 1024) for name in ("growth", "extra_after_backward", "extra_peak"))
    sentences = {
        "metric_keeps_graph": f"every step leaves {growth} behind, the size of the metrics' probabilities",
        "autocast_around_backward": f"at the end of backward {after} too much is held, the size of the bfloat16 copies "
        "of the weights",
        "list_of_losses": f"the peak is {peak} higher and nothing stays: the activations of several micro-batches are "
        "there simultaneously",
    }
    wrong = {kind: sentences[kind] for kind in faults(row)}
    return Verdict.of_faults(row["variant"], wrong, "nothing is held too long")


_CODES = {
    name: code_of(f"lessons.precision_memory.bugs.{name}").replace(f"def {name}(", "def run(") for name in SYMPTOMS
}
suspects, diagnose, show_suspects = line_up("precision_memory", SYMPTOMS, symptoms, verdict_of, _CODES)


def why_it_stalls() -> HTML:
    """Ask why the bfloat16 sum stops."""
    return why(
        "Why does the bfloat16 sum stop?",
        ("Its neighbours are too far apart there", "Half their distance is more than 0.01: each sum is rounded back."),
        ("0.01 is no number of bfloat16", "True, it is rounded to 0.01001. But that changes a sum by 0.1 % only."),
        ("The sum leaves bfloat16's range", "bfloat16 has float32's range: its largest number is about 3.4 × 10³⁸."),
    )
