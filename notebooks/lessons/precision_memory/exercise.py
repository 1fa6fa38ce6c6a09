"""The student's peak of memory, the placement of checkpoints, and the loops with a bug: how each is judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from labkit.course.exercise import called, written
from labkit.course.exercises import CORE, STRETCH, Exercise, Exercises
from labkit.course.judging import close, is_number
from labkit.course.lineup import line_up
from labkit.course.verdict import RIGHT, WRONG, Verdict
from labkit.engine.launch import launch
from labkit.story import units
from lessons.precision_memory.bugs import SYMPTOMS
from lessons.precision_memory.hints import HINTS
from lessons.precision_memory.listings import CODES
from lessons.precision_memory.plan import Hidden
from lessons.precision_memory.tables.memory import MIB, faults, symptoms
from lessons.precision_memory.theory.levers import Block, best_placement, checkpointed_peak, recomputed_ms

# vocabulary, hidden, inner, layers, heads, samples, sequence, precision, phase: states, activations, logits, copies of
# weights or a first step without moments decide, in turn
CONFIGURATIONS = (
    (1000, 192, 768, 3, 4, 1, 16, "float32", "first"),
    (1000, 192, 768, 3, 4, 1, 16, "float32", "steady"),
    (500, 96, 384, 6, 4, 4, 96, "float32", "steady"),
    (500, 96, 384, 6, 4, 4, 96, "bfloat16", "steady"),
    (6000, 64, 128, 2, 2, 4, 64, "float32", "steady"),
    (800, 160, 640, 4, 4, 2, 76, "bfloat16", "steady"),
    (400, 96, 384, 4, 4, 2, 96, "float32", "first"),
)
_ALLOWED = 0.10  # of the measured peak
_EVEN = Block(10.0, 1.0, 2.0)
PLACEMENTS = (  # blocks (MiB kept, MiB of the input, ms), and the budget in MiB
    ([_EVEN] * 6, 40.0),
    ([_EVEN] * 6, 100.0),
    ([Block(30.0, 1.0, 9.0), Block(10.0, 1.0, 1.0), Block(12.0, 1.0, 1.0), Block(20.0, 1.0, 3.0)], 50.0),
    (
        [
            Block(8.0, 2.0, 3.0),
            Block(16.0, 2.0, 5.0),
            Block(8.0, 2.0, 1.0),
            Block(24.0, 2.0, 9.0),
            Block(8.0, 2.0, 2.0),
        ],
        44.0,
    ),
    ([Block(10.0, 1.0, 1.0)] * 3 + [Block(40.0, 1.0, 2.0)], 45.0),
    (
        [
            Block(19.0, 2.0, 4.0),
            Block(7.0, 5.0, 6.0),
            Block(9.0, 1.0, 1.0),
            Block(14.0, 4.0, 6.0),
            Block(12.0, 1.0, 7.0),
        ],
        34.0,
    ),
)


def check_peaks(exercise: str, *, size: str = "auto", gpus: int = 0, patience_s: float = 20.0) -> Verdict:
    """Compare the student's `peak_bytes` with peaks that are measured here, of configurations that were not shown."""
    given = called(f"precision_memory.{exercise}", [list(one) for one in CONFIGURATIONS], patience_s)
    if isinstance(given, Verdict):
        return given
    run = launch(Hidden.sized(size, gpus=gpus, configurations=CONFIGURATIONS))
    verdict = judge_peaks(given, list(run.rows["peak_mib"] * MIB), run.plan.device)
    return replace(verdict, printed=given.printed)


def judge_peaks(
    returned: list, measured: list[float], device: str = "cuda", configurations: Sequence[tuple] = CONFIGURATIONS
) -> Verdict:
    """Return the verdict on peaks in bytes beside the measured ones, one per configuration."""
    faults: dict[str, str] = {}
    for number, (one, given, peak) in enumerate(zip(configurations, returned, measured, strict=True), start=1):
        said = f"configuration {number} ({one[-2]}, {one[-1]} step)"
        if not is_number(given):
            why = ": is a `return` missing?" if given is None else ""
            faults.setdefault("form", f"{said}: it gives {given!r:.60}, not a number of bytes{why}")
        elif not close(given, peak, _ALLOWED):
            found = f"{units.size(given)}, and the measured peak is {units.size(peak)}"
            faults.setdefault(_kind(one, given, peak), f"{said}: it gives {found}{_hint(one, given, peak)}")
    counter = "the allocator" if device == "cuda" else "the count of storages (a CPU has no such allocator)"
    merits = (f"all {len(measured)} hidden configurations are within {units.percent(_ALLOWED)} of {counter}",)
    return Verdict("peak_bytes", WRONG if faults else RIGHT, faults, () if faults else merits)


def _kind(configuration: tuple, given: float, peak: float) -> str:
    precision, phase = configuration[-2:]
    return f"{precision}, {phase}" + (", too much" if given > peak else "")


def _hint(configuration: tuple, given: float, peak: float) -> str:
    """Return what the difference may be."""
    vocabulary, hidden, inner, layers = configuration[:4]
    precision, phase = configuration[-2:]
    weights = layers * (4 * hidden**2 + 3 * hidden * inner) + 2 * vocabulary * hidden
    missing, near = peak - given, 0.15
    if abs(missing / (8 * weights) - 1) < near:
        return ": what is missing is as much as AdamW's two moments take"
    if abs(missing / (4 * weights) - 1) < near:
        return ": what is missing is as much as the gradients take"
    if precision == "bfloat16" and abs(missing / (2 * weights) - 1) < near:
        return ": what is missing is as much as the bfloat16 copies of the weights take"
    if missing < 0 and phase == "first":
        return ": in the first step AdamW has no moments yet while the activations are there"
    return ""


def judge_placement(returned: list, placements: Sequence[tuple[list[Block], float]] = PLACEMENTS) -> Verdict:
    """Return the verdict on placements: for each of `placements` the numbers of the blocks to checkpoint."""
    faults: dict[str, str] = {}
    for given, (blocks, budget) in zip(returned, placements, strict=True):
        fault = _placed_wrongly(given, blocks, budget)
        if fault:
            call = written("placement", [[list(block) for block in blocks], budget])
            faults.setdefault(fault[0], f"{call} gives {fault[1]}")
    merits = ("every placement is within its budget, and no other one takes less time",)
    return Verdict("placement", WRONG if faults else RIGHT, faults, () if faults else merits)


def _placed_wrongly(given, blocks: list[Block], budget: float) -> tuple[str, str] | None:
    if not isinstance(given, list) or not all(type(one) is int for one in given):
        why = ": is a `return` missing?" if given is None else ""
        return "form", f"{given!r:.60}, not a list of block numbers{why}"
    if len(set(given)) < len(given) or not all(0 <= one < len(blocks) for one in given):
        return "bounds", f"{given}, which has a block twice, or one that is not there"
    peak = checkpointed_peak(blocks, set(given))
    if peak > budget:
        held = sum(one.input_mib if at in given else one.kept_mib for at, one in enumerate(blocks))
        again = " while a block is computed again, because that block then keeps all" if held <= budget else ""
        return "budget", f"{given}, whose peak is {peak:g} MiB{again}; the budget is {budget:g} MiB"
    best = best_placement(blocks, budget)
    if best is not None and recomputed_ms(blocks, set(given)) > best[1]:
        return "time", f"{given}, which adds {recomputed_ms(blocks, set(given)):g} ms; {best[1]:g} ms are enough"
    return None


def verdict_of(row: dict) -> Verdict:
    """Return the verdict on one variant's symptoms: a sentence a fault."""
    grown = units.gib(row["growth"] / 1024)
    sentences = {
        "metric_keeps_graph": f"every step leaves {grown} behind, the size of the metrics' probabilities: a "
        f"metric without "
        "detach keeps its graph",
        "kept_by_hook": f"every step leaves {grown} behind, the size of all blocks' outputs: a hook collects them",
        "autocast_around_backward": f"at the end of backward {units.gib(row['extra_after_backward'] / 1024)} too "
        f"much is "
        "held, the size of the bfloat16 copies of the weights: autocast is still open",
        "list_of_losses": f"the peak is {units.gib(row['extra_peak'] / 1024)} higher and nothing stays: the "
        f"activations of "
        "several micro-batches are there at the same time",
    }
    found = {kind: sentences[kind] for kind in faults(row)}
    return Verdict(row["variant"], WRONG if found else RIGHT, found, () if found else ("nothing is held too long",))


check = Exercises(
    "precision_memory",
    Exercise("peak_bytes", CONFIGURATIONS, check=check_peaks, hints=HINTS["peak_bytes"], grade=CORE),
    Exercise(
        "placement",
        [([list(one) for one in blocks], budget) for blocks, budget in PLACEMENTS],
        judge_placement,
        hints=HINTS["placement"],
        grade=STRETCH,
    ),
)
hint, solution, attempts = check.hint, check.solution, check.attempts
suspects, diagnose, show_suspects = line_up(
    "precision_memory", SYMPTOMS, lambda run: symptoms(run).to_dict("records"), verdict_of, CODES
)
