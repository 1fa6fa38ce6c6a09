"""Check a broadcast that somebody wrote, by what it did: every copy that it asked for was logged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd
from IPython.display import HTML, Markdown

from labkit.course import answers
from labkit.course.exercise import launched, printed_in, unanswered
from labkit.course.exercises import CORE, STRETCH, Exercise, Exercises
from labkit.course.lineup import Naming, lined_up, side_by_side
from labkit.course.verdict import RIGHT, WRONG, Verdict
from labkit.story import units
from labkit.story.words import listed
from lessons.broadcast.bugs import SYMPTOMS
from lessons.broadcast.chunks import TOLERANCE, beside, chunks_fault, elements, overlap_fault
from lessons.broadcast.graph import Graph
from lessons.broadcast.hints import HINTS
from lessons.broadcast.listings import CODES
from lessons.broadcast.plan import CHUNKED, Trial

if TYPE_CHECKING:
    from labkit.engine.run import Run


def check_function(exercise: str, *, size: str = "small", gpus: int = 0, patience_s: float = 20.0) -> Verdict:
    """Launch the student's answer to `exercise` ("pipelined", "scatter_all_gather") or a bug by its name, and judge it.

    Right values on every GPU, nothing forwarded before it arrived, every byte over the host links once, chunk by chunk,
    no copy that waits for one it does not need, no buffers of its own; then its time and the reference solution's.
    Raises ValueError for an unknown exercise.
    """
    if exercise not in (*CHUNKED, *SYMPTOMS):
        raise ValueError(f"{exercise!r} is no exercise; there are {', '.join((*CHUNKED, *SYMPTOMS))}")
    reference = exercise if exercise in CHUNKED else "pipelined"
    function = f"{'answers' if exercise in CHUNKED else 'bugs'}.{exercise}"
    if exercise in CHUNKED and (verdict := unanswered(f"broadcast.{exercise}")) is not None:
        return verdict
    functions = (f"methods.{reference}", function)
    plan = Trial.sized(size, gpus=gpus, functions=functions, answers=str(answers.folder()))
    run = launched(exercise, plan, patience_s, "a wait in it does not end, or it is too slow")
    if isinstance(run, Verdict):
        return run
    printed = printed_in(run.rows[run.rows["function"] == function])
    return replace(judge(exercise, reference, function, run), printed=printed)


def judge(exercise: str, reference: str, function: str, run: Run) -> Verdict:
    """Return the verdict on `function` from a Trial's rows and spans, and compare it with that of `reference`."""
    rows, reference_rows = (run.rows[run.rows["function"] == name] for name in (function, f"methods.{reference}"))
    gpus, pieces = run.plan.gpus, run.plan.chunks * (1 if reference == "pipelined" else run.plan.gpus)
    copies, best = (_copies(run, name) for name in (function, f"methods.{reference}"))
    graph, ideal = (Graph(table, run.plan.elements // pieces) for table in (copies, best))
    sentences = _swapped(graph) or {
        "source_reused": _source(rows),
        "early_forward": _order(graph),
        "wrong_copy": _values(rows, copies, gpus),
        "bytes": _bytes(copies, reference, run.plan.elements, gpus),
        "own_buffer": _buffers(copies),
        "wrong_lane": _lanes(graph),
        "unsynchronised": _clock(rows),
    }
    faults = {kind: sentence for kind, sentence in sentences.items() if sentence}
    # A forward that came too early, or a source that changed, explains the wrong values: name the cause alone.
    if faults.keys() & {"source_reused", "early_forward"}:
        faults.pop("wrong_copy", None)
    if not faults.keys() - {"source_reused", "unsynchronised"}:  # the others change what waits for what
        if sentence := chunks_fault(graph, rows, run.plan.chunks, pieces):
            faults["chunks"] = sentence
        elif graph.chunk_times > TOLERANCE * graph.least_chunk_times:
            faults["no_overlap"] = overlap_fault(graph, ideal, run.plan.chunks)
    seconds, best_seconds = (
        table[~table["warm_up"].astype(bool)]["seconds"].median() for table in (rows, reference_rows)
    )
    merits = (
        f"all {gpus} copies equal the source, and every byte crossed the host links once",
        f"it took {units.seconds(seconds)}, the reference solution {units.seconds(best_seconds)}: "
        f"{units.times(seconds / best_seconds)} its time",
        f"no copy waits for one that it does not need: {beside(graph, ideal, run.plan.chunks)}",
    )
    return Verdict(exercise, WRONG if faults else RIGHT, faults, () if faults else merits)


def _copies(run: Run, function: str) -> pd.DataFrame:
    """Return the copies of one call of a function, with the first seed."""
    copies = run.spans[run.spans["function"] == function]
    return copies[copies["point"] == copies["point"].min()]


def _swapped(graph: Graph) -> dict[str, str]:
    """A copy into the source, or against its lane's direction, has its two arguments swapped."""
    for copy in graph.copies:
        if copy.target == "host":
            what = f"a copy writes {elements(copy)} of the source tensor"
        elif copy.lane == f"{copy.target} → {copy.origin}":
            what = f"lane `{copy.lane}` is asked to copy {elements(copy)} from GPU {copy.origin} to GPU {copy.target}"
        else:
            continue
        return {"swapped": f"{what}: `copy(target, origin)` takes the target first, so swap the two"}
    return {}


def _source(rows: pd.DataFrame) -> str | None:
    if rows["source_in_use"].any():
        return "the source changed while copies were still reading it: wait for the lanes before you reuse a buffer"
    return None


def _order(graph: Graph) -> str | None:
    """A forward must wait, by `after`, its lane's order or a wait of the function, for what filled that part."""
    for copy in graph.missing():
        return (
            f"a copy from GPU {copy.origin} to GPU {copy.target} sends {elements(copy)} before they are sure to have "
            f"arrived on GPU {copy.origin}: pass `after=` the copy that brings them there"
        )
    return None


def _lanes(graph: Graph) -> str | None:
    """A copy takes the road between its two buffers: on another one it stands behind copies of other links."""
    for copy in graph.copies:
        if "elsewhere" not in (copy.origin, copy.target) and copy.lane != f"{copy.origin} → {copy.target}":
            origin = f"GPU {copy.origin}" if copy.is_forward else "the host"
            road = f"peer({copy.origin}, {copy.target})" if copy.is_forward else f"host({copy.target})"
            moved = f"{elements(copy)} from {origin} into GPU {copy.target}"
            return f"lane `{copy.lane}` carries {moved}: use `lanes.{road}`"
    return None


def _values(rows: pd.DataFrame, copies: pd.DataFrame, gpus: int) -> str | None:
    wrong = rows[rows["status"] != "ok"]
    if wrong.empty:
        return None
    if empty := [gpu for gpu in range(gpus) if str(gpu) not in {*copies["target"]}]:
        asked = "forward each part" if empty[0] else "pull each part from the host, and forward it"
        return f"{_gpus(empty)} received no data: did you {asked}?"
    return f"{wrong['status'].iloc[0]} in {len(wrong)} of {len(rows)} repeats: which part goes into which buffer?"


def _gpus(numbers: Iterable[object]) -> str:
    names = [*numbers]
    return f"GPU{'s' if len(names) > 1 else ''} {listed(names)}" if names else "no GPU"


def _bytes(copies: pd.DataFrame, reference: str, elements: int, gpus: int) -> str | None:
    """Over the host links every element passes once, to GPU 0 or an equal share to each GPU; no GPU gets any twice."""
    pulled = copies[copies["origin"] == "host"].groupby("target")["elements"].sum()
    expected = {"0": elements} if reference == "pipelined" else {str(gpu): elements // gpus for gpu in range(gpus)}
    if dict(pulled) != expected:
        return (
            f"the host links carried {pulled.sum() / elements:.2f} × the tensor, to "
            f"{_gpus(pulled.index)}; each element "
            f"should cross them once, to {_gpus(expected)}"
        )
    received = copies[copies["target"] != "elsewhere"].groupby("target")["elements"].sum()
    for gpu, count in received[received > elements].items():
        return f"GPU {gpu} receives {count / elements:.2f} × the tensor: each element should reach it once"
    return None


def _buffers(copies: pd.DataFrame) -> str | None:
    if (copies[["origin", "target"]] == "elsewhere").to_numpy().any():
        return "it copies through a buffer of its own, which costs memory: the copies themselves can hold every chunk"
    return None


def _clock(rows: pd.DataFrame) -> str | None:
    if "claimed_seconds" not in rows:
        return None
    early = rows[rows["claimed_seconds"].notna() & (rows["in_flight"] > 0)]
    if early.empty:
        return None
    row = early[~early["warm_up"].astype(bool)][["claimed_seconds", "in_flight", "seconds"]].median()
    return (
        f"the function's own clock stopped at {units.seconds(row['claimed_seconds'])}, when {row['in_flight']:.0f} "
        f"copies had not arrived; the synchronised clock says {units.seconds(row['seconds'])}: wait for the lanes "
        "before you stop the clock"
    )


def suspects() -> tuple[str, ...]:
    """Return the names of the broken broadcasts, in an order that gives nothing away."""
    return tuple(f"bugs.{name}" for name in lined_up(SYMPTOMS))


def diagnose(run: Run, named: Mapping[str, str] | None = None) -> Naming | Markdown:
    """Ask which bug each suspect of a Trial run has, and then say it; or say it immediately for a dict by letter."""
    names = [name for name in run.plan.functions if not name.startswith("methods.")]
    verdicts = (judge(name.partition(".")[2], "pipelined", name, run) for name in names)
    naming = Naming("broadcast", SYMPTOMS, len(names), lambda: verdicts)
    return naming if named is None else naming.reveal(named)


def show_suspects() -> HTML:
    """Show the code of the suspects side by side, in the order of their letters."""
    return side_by_side([CODES[name] for name in lined_up(SYMPTOMS)])


_METHODS = "lessons.broadcast.worker.methods"
check = Exercises(
    "broadcast",
    Exercise(
        "pipelined",
        check=check_function,
        hints=HINTS["pipelined"],
        grade=CORE,
        solution=(f"{_METHODS}.pipelined",),
    ),
    Exercise(
        "scatter_all_gather",
        check=check_function,
        hints=HINTS["scatter_all_gather"],
        grade=STRETCH,
        solution=(f"{_METHODS}.scatter_all_gather", f"{_METHODS}._rounds"),
    ),
)
hint, solution, attempts = check.hint, check.solution, check.attempts
