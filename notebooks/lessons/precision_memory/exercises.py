"""The exercises of lab 07: checkpoints by hand, the peak of a step beside the measured one, and loops with a bug."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from IPython.display import HTML

from labkit.course.answer_launch import call_answer, call_text
from labkit.course.exercises import CORE, WARM_UP, Cases, Exercise, Exercises, Trial, compared
from labkit.course.judging import Mistake, is_close, is_number, not_the_form
from labkit.course.lineup import line_up, why
from labkit.course.source import code_of
from labkit.course.verdict import Verdict
from labkit.launching import launch
from labkit.story import units
from labkit.story.words import listed
from labkit.theory.sizes import MIB
from lessons.precision_memory.bugs import SYMPTOMS
from lessons.precision_memory.plan import Hidden, Levers
from lessons.precision_memory.tables import faults, levers, symptoms
from lessons.precision_memory.theory.memory import REFERENCE, YOURS, blocks_peak

if TYPE_CHECKING:
    from labkit.engine.run import Run

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
_EXACT = 1e-9  # float64
_SAME_LOSS = 0.01


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


def _kept(random: Random) -> list:
    """Return bytes that a block keeps, those of its input, blocks, and how often one is checkpointed."""
    shown = [(900, 100, 6, 1), (900, 100, 6, 2), (900, 100, 5, 2), (900, 100, 7, 3), (900, 100, 4, 9), (700, 50, 1, 1)]
    shown += [(900, 100, 40, 1), (900, 100, 40, 3), (900, 100, 42, 3)]
    drawn = [(random.randint(30, 90), random.randint(2, 20), random.randint(3, 24)) for _ in range(6)]
    return shown + [(10 * kept, 10 * entry, layers, random.randint(1, 6)) for kept, entry, layers in drawn]


def _fullest(kept: int, entry: int, layers: int, every: int, *, more: int = 0, again: bool = True) -> int:
    """Return what blocks hold at most if `more` of them are checkpointed, and if none is computed `again`."""
    checkpointed = len(range(0, layers, every)) + more
    held = checkpointed * entry + (layers - checkpointed) * kept
    return held + (kept - entry if again and (layers - 1) % every == 0 else 0)


_FULLEST = compared(
    "fullest",
    blocks_peak,
    (
        Mistake(
            "no_second_forward",
            lambda *case: _fullest(*case, again=False),
            "that is held after forward; in backward a checkpointed block is computed again and keeps everything",
        ),
        Mistake(
            "nothing_freed",
            lambda kept, entry, *case: _fullest(kept, entry, *case, again=False) + kept - entry,
            "when backward comes to the last checkpointed block, the blocks after it hold nothing any more",
        ),
        Mistake(
            "input_twice",
            lambda kept, entry, layers, every: (
                _fullest(kept, entry, layers, every) + (entry if (layers - 1) % every == 0 else 0)
            ),
            "the input of a block that is computed again is there already: it is part of what the block keeps",
        ),
        Mistake(
            "others_checkpointed",
            lambda kept, entry, layers, every: _fullest(
                kept, entry, layers, every, more=layers - 2 * len(range(0, layers, every))
            ),
            "numbers 0, every, 2·every … are checkpointed, and the others keep everything",
        ),
        Mistake(
            "rounded_down",
            lambda kept, entry, layers, every: _fullest(
                kept, entry, layers, every, more=layers // every - len(range(0, layers, every))
            ),
            "block 0 is checkpointed: of 5 blocks with every = 2 these are 0, 2 and 4",
        ),
        Mistake(
            "nothing_checkpointed",
            lambda kept, entry, layers, every: layers * kept,
            "that is without checkpoints; those blocks hold their input only, and are computed again one at a time",
        ),
    ),
    result_form="a number of bytes",
    rule="at each moment, checkpointed blocks hold their input and others all; the one computed again holds all, too",
    merit="the fullest moment is found, also where the last block is checkpointed",
    grade=WARM_UP,
    cases=Cases(_kept),
    hints=(
        "There are two candidates: the end of forward, and backward at the last checkpointed block. Which is fuller, "
        "and when?",
        "After forward, checkpointed blocks hold `entry` and others `kept`. Blocks after the last checkpointed one are "
        "gone when it is computed again: then it holds `kept` in place of `entry`.",
        "`checkpointed = len(range(0, layers, every))` and `held = checkpointed * entry + (layers - checkpointed) * "
        "kept`. Only if the last block is checkpointed, `(layers - 1) % every == 0`, add `kept - entry`.",
    ),
)


def _stacks(random: Random) -> list:
    """Return one rank, blocks, how often one is checkpointed, and samples."""
    shown = [(1, 4, 1, 3), (1, 5, 2, 4), (1, 7, 3, 2), (1, 2, 5, 3), (1, 1, 1, 4)]
    return shown + [(1, random.randint(3, 9), random.randint(1, 4), random.randint(2, 5)) for _ in range(3)]


def judge_stacks(given: Sequence, inputs: Sequence, _due: Sequence = ()) -> Verdict:
    """Return the verdict on what each stack of blocks kept, computed again and returned."""
    faults: dict[str, str] = {}
    for (found,), (_, blocks, every, _) in zip(given, inputs, strict=True):
        if fault := _stack_fault(found, blocks, every):
            faults.setdefault(fault[0], f"with {blocks} block{'s'[: blocks > 1]} and every = {every}, {fault[1]}")
    merit = "the checkpointed blocks keep their input, each is computed again in its turn, and all gradients are right"
    return Verdict.of_faults("run_blocks", faults, merit)


def _stack_fault(found: dict, blocks: int, every: int) -> tuple[str, str] | None:
    """Return the first fault of a stack: its kind and its sentence."""
    if "form" in found:
        return "form", f"it {found['form']}"
    due = [*range(0, blocks, every)]
    if left_out := [number for number, calls in enumerate(found["calls"]) if not calls]:
        return "left_out", f"forward does not run {_named(left_out)}"
    if twice := [number for number, calls in enumerate(found["calls"]) if calls > 1]:
        return "twice", f"forward runs {_named(twice)} more than once: the second time belongs into backward"
    if not found["error"] < _EXACT:
        off = f"off by {units.percent(found['error'])}" if math.isfinite(found["error"]) else "not finite"
        return "result", f"the result is not that of the blocks in turn: it is {off}"
    if missing := [number for number, error in enumerate(found["gradients"]) if error is None]:
        again = "" if any(found["again"]) else ", and backward computes nothing again"
        return "no_gradient", f"the weights of {_named(missing)} get no gradient{again}"
    if found["x_gradient"] is None:
        return "x_gradient", "x gets no gradient: what does backward return?"
    if all(found["kept"]):
        return "nothing", "no block is checkpointed: after forward the inner tensors of all are in memory"
    if keep_all := [number for number in due if found["kept"][number]]:
        return "kept", f"{_named(keep_all)} should keep the input only; after forward inner tensors are in memory"
    if wrong := [number for number, error in enumerate(found["gradients"]) if not error < _EXACT]:
        off = units.percent(found["gradients"][wrong[0]])
        return (
            "gradient",
            f"the weights of {_named(wrong)} get another gradient than without checkpoints (off by {off})",
        )
    if not found["x_gradient"] < _EXACT:
        return "x_gradient", f"x gets another gradient (off by {units.percent(found['x_gradient'])})"
    if others := [number for number, kept in enumerate(found["kept"]) if not kept and number not in due]:
        return "others", f"{_named(others)} should keep everything, and {'are' if others[1:] else 'is'} checkpointed"
    if again := [number for number in due if found["again"][number] != 1]:
        return "again", f"backward computes {_named(again)} {found['again'][again[0]]} times, not once"
    if found["together"] > 1:
        return (
            "together",
            f"backward has {found['together']} blocks in memory that it computed again, not one at a time",
        )
    return None


def _named(numbers: Sequence[int]) -> str:
    return f"block{'s'[: len(numbers) > 1]} {listed(map(str, numbers))}"


def _tried(file: str, *, size: str = "small", gpus: int = 0) -> list[Levers]:
    """Return the plan with your blocks, at a context where activations are most of the peak."""
    sequence = 1024 if Levers.sized(size, gpus=gpus).device == "cuda" else 128
    beside = ("plain", "checkpoint every 2nd block", REFERENCE)
    return [Levers.sized(size, gpus=gpus, seeds=1, sequence=sequence, repeats=5, yours=file, levers=beside)]


def judge_levers(run: Run) -> Verdict:
    """Return the verdict on the peak of a step with your blocks beside the formula, and on its loss beside plain."""
    table = levers(run).set_index("lever")
    where = f"on {run.plan.workers_text}, context {run.plan.sequence}"
    peak, plain = (table.loc[name, "peak_mib"] * MIB for name in (YOURS, "plain"))
    due = table.loc[YOURS, "formula_mib"] * MIB
    losses = run.entries("step").groupby("lever")["loss"].last()
    faults = {}
    if not is_close(losses[YOURS], losses["plain"], _SAME_LOSS):
        faults["loss"] = f"{where}, the loss is {losses[YOURS]:.4g} and {losses['plain']:.4g} without checkpoints"
    peaks = f"{where}, a step peaks at {units.size(peak)} with every 2nd block checkpointed by you"
    if not is_close(peak, due, _ALLOWED):
        faults["peak"] = (
            f"{peaks}; the formula says {units.size(due)}, and without checkpoints it is {units.size(plain)}"
        )
    yours, ours, torchs, none = (
        units.seconds(table.loc[name, "step_ms"] / 1e3)
        for name in (YOURS, REFERENCE, "checkpoint every 2nd block", "plain")
    )
    return Verdict.of_faults(
        "run_blocks",
        faults,
        f"{peaks}: {units.percent(abs(peak / due - 1))} from the formula's {units.size(due)}, "
        f"{units.percent(1 - peak / plain)} below the plain step's",
        f"the step takes {yours} with your checkpoint, {ours} with the reference solution, {torchs} with torch's and "
        f"{none} without",
    )


check = Exercises(
    "precision_memory",
    _FULLEST,
    Exercise(
        "run_blocks",
        judge=judge_stacks,
        trial=Trial(_tried, judge_levers),
        grade=CORE,
        solution=tuple(f"lessons.precision_memory.worker.checkpoints.{name}" for name in ("Checkpoint", "run_blocks")),
        cases=Cases(
            _stacks,
            driver="lessons.precision_memory.worker.tried",
            on_ranks=True,
            reference=("lessons.precision_memory.worker.checkpoints.run_blocks",),
            may_import=tuple(f"lessons.precision_memory.worker.{name}" for name in ("tried", "checkpoints")),
            start_s=40.0,  # torch
        ),
        hints=(
            "What does backward need of a block that kept only its input? Inside an autograd function, nothing is "
            "recorded: which of the block's two runs has to be recorded all the same?",
            "Forward: keep `block` in `ctx`, and x with `ctx.save_for_backward`; run the block. Backward: run it again "
            "on a detached x that wants a gradient, under `torch.enable_grad()`; go back from its result.",
            "In backward: `(x,) = ctx.saved_tensors`, `x = x.detach().requires_grad_()`, `y = ctx.block(x)` under "
            "`torch.enable_grad()`, `y.backward(gradient)`, `return None, x.grad`. In the loop: "
            "`x = Checkpoint.apply(block, x) if number % every == 0 else block(x)`.",
        ),
    ),
    Exercise(
        "peak_bytes",
        SHOWN,
        check=check_peaks,
        grade=CORE,
        cases=Cases(_configurations, _judge_hidden_peaks, may_import=("labkit.theory.transformer.activations",)),
        hints=(
            "Of the three moments above, the end of backward holds what the update holds, or less. Two are left: the "
            "loss, at the end of forward, and the optimizer's update. What is in memory at each of them?",
            "At the loss: weights, optimizer states if there was a step before, all activations, copies of the weights "
            "under autocast, and what the loss needs beside its logits. At the update: weights, gradients and states. "
            "Return the larger one.",
            "`matrices = layers * (4 * hidden**2 + 3 * hidden * inner) + hidden * vocabulary`, and the embedding "
            "comes on top. At the update there are 16 bytes per parameter. At the loss: 4 per parameter, 8 more in a "
            "steady step, 2 per element of the matrices for bfloat16 copies, the activations, and `8 * tokens * "
            "vocabulary`.",
        ),
    ),
)
hint, solution, attempts, yours = check.hint, check.solution, check.attempts, check.yours


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
