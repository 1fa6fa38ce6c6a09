"""The exercises of lab 02: a broadcast that somebody wrote is judged by what it did, since every copy was logged.

Each exercise is one place: its check and hidden cases, its hints, its reference solution; then the bugs to find.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pandas as pd
from IPython.display import HTML, Markdown

from labkit.course import answers
from labkit.course.answer_launch import launch_answer, printed_in, unanswered_verdict
from labkit.course.exercises import CORE, STRETCH, Cases, Exercise, Exercises
from labkit.course.lineup import Naming, neutral_order, one_below_another, why
from labkit.course.source import code_of
from labkit.course.verdict import RIGHT, Verdict
from labkit.story import units
from labkit.story.words import listed
from lessons.broadcast.bugs import SYMPTOMS
from lessons.broadcast.graph import Copy, Graph
from lessons.broadcast.plan import CHUNKED, Trial

if TYPE_CHECKING:
    from labkit.engine.run import Run

TOLERANCE = 1.1  # a longest chain of copies up to this times the least one is as good
MOST_COPIES = 3_000  # the graph takes time with their square; 8 GPUs scatter and gather 16 chunks in 1,024
_WORKER = "lessons.broadcast.worker"
_SPANS = ["index", "lane", "origin", "target", "first", "elements", "after", "waited"]
Tables = tuple[pd.DataFrame, pd.DataFrame]  # the rows of a function's repeats, and the copies of one call


def check_function(exercise: str, *, size: str = "small", gpus: int = 0, patience_s: float = 20.0) -> Verdict:
    """Launch the student's answer to `exercise` ("pipelined", "scatter_all_gather") or a bug by its name, and judge it.

    Right values on every GPU, nothing forwarded before it arrived, every byte over the host links once, chunk by chunk,
    no copy that waits for one it does not need, no buffers of its own; then its time and the reference solution's. An
    answer that is right on four GPUs or more is tried on half of them, too.
    Raises ValueError for an unknown exercise.
    """
    if exercise not in (*CHUNKED, *SYMPTOMS):
        raise ValueError(f"{exercise!r} is no exercise; there are {', '.join((*CHUNKED, *SYMPTOMS))}")
    reference = exercise if exercise in CHUNKED else "staged"
    function = f"{'answers' if exercise in CHUNKED else 'bugs'}.{exercise}"
    if exercise in CHUNKED and (verdict := unanswered_verdict(f"broadcast.{exercise}")) is not None:
        return verdict
    functions = (f"methods.{reference}", function)
    plan = Trial.sized(size, gpus=gpus, functions=functions, answers=str(answers.folder()))

    def tried(plan: Trial) -> Verdict:
        run = launch_answer(exercise, plan, patience_s, "a wait in it does not end, or it is too slow")
        if isinstance(run, Verdict):
            return run
        printed = printed_in(run.rows[run.rows["function"] == function])
        return replace(judge(exercise, reference, function, run), printed=printed)

    verdict = tried(plan)
    if verdict.outcome != RIGHT or plan.gpus < 4:
        return verdict
    fewer = tried(replace(plan, gpus=plan.gpus // 2))
    if fewer.outcome == RIGHT:
        return verdict
    where = f"it is right on {plan.gpus} GPUs, and not on {plan.gpus // 2}"
    return replace(fewer, faults={kind: f"{where}: {sentence}" for kind, sentence in fewer.faults.items()})


def judge(exercise: str, reference: str, function: str, run: Run) -> Verdict:
    """Return the verdict on `function` from a Trial's rows and spans, and compare it with that of `reference`."""
    names = (function, f"methods.{reference}")
    yours, best = ((run.rows[run.rows["function"] == name], _copies_of_call(run, name)) for name in names)
    return judge_tables(exercise, reference, yours, best, run.plan.elements, run.plan.gpus, run.plan.chunks)


def judge_tables(
    exercise: str, reference: str, yours: Tables, best: Tables, elements: int, gpus: int, chunks: int
) -> Verdict:
    """Return the verdict on an answer from its rows and the copies of one call, beside those of the reference."""
    (rows, copies), (reference_rows, best_copies) = yours, best
    pieces = {"staged": 1, "pipelined": chunks, "scatter_all_gather": chunks * gpus}[reference]
    if len(copies) > MOST_COPIES:
        what = f"it makes {units.count(len(copies))} copies with chunks={chunks}, and no more than"
        sentence = f"{what} {units.count(MOST_COPIES)} are judged: copy a chunk at a time"
        return Verdict.of_faults(exercise, {"too_many": sentence})
    graph, ideal = (Graph(table, elements // pieces) for table in (copies, best_copies))
    sentences = _swapped(graph) or {
        "source_reused": _source_fault(rows),
        "early_forward": _order_fault(graph),
        "wrong_copy": _values_fault(rows, copies, gpus),
        "bytes": _bytes_fault(copies, reference, elements, gpus),
        "own_buffer": _buffers_fault(copies),
        "wrong_lane": _lanes_fault(graph),
        "unsynchronised": _clock_fault(rows),
    }
    faults = {kind: sentence for kind, sentence in sentences.items() if sentence}
    # A forward that came too early, or a source that changed, explains the wrong values: name the cause alone.
    if faults.keys() & {"source_reused", "early_forward"}:
        faults.pop("wrong_copy", None)
    # Any other fault changes what waits for what.
    if reference in CHUNKED and not faults.keys() - {"source_reused", "unsynchronised"}:
        if sentence := chunks_fault(graph, rows, chunks, pieces):
            faults["chunks"] = sentence
        elif graph.chunk_times > TOLERANCE * graph.least_chunk_times:
            faults["no_overlap"] = overlap_fault(graph, ideal, chunks)
    seconds, best_seconds = (
        table[~table["warm_up"].astype(bool)]["seconds"].median() for table in (rows, reference_rows)
    )
    merits = (
        f"all {gpus} copies equal the source, and every byte crossed the host links once",
        f"it took {units.seconds(seconds)}, the reference solution {units.seconds(best_seconds)}: "
        f"{units.times(seconds / best_seconds)} its time",
        f"no copy waits for one that it does not need: {waits_beside(graph, ideal, chunks)}",
    )
    return Verdict.of_faults(exercise, faults, *merits)


def _copies_of_call(run: Run, function: str) -> pd.DataFrame:
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


def _source_fault(rows: pd.DataFrame) -> str | None:
    if rows["source_in_use"].any():
        return "the source changed while copies were still reading it: wait for the lanes before you reuse a buffer"
    return None


def _order_fault(graph: Graph) -> str | None:
    """A forward must wait, by `after`, its lane's order or a wait of the function, for what filled that part."""
    for copy in graph.missing():
        return (
            f"a copy from GPU {copy.origin} to GPU {copy.target} sends {elements(copy)} before they are sure to have "
            f"arrived on GPU {copy.origin}: pass `after=` the copy that brings them there"
        )
    return None


def _lanes_fault(graph: Graph) -> str | None:
    """A copy takes the road between its two buffers: on another one it stands behind copies of other links."""
    for copy in graph.copies:
        if "elsewhere" not in (copy.origin, copy.target) and copy.lane != f"{copy.origin} → {copy.target}":
            origin = f"GPU {copy.origin}" if copy.is_forward else "the host"
            road = f"peer({copy.origin}, {copy.target})" if copy.is_forward else f"host({copy.target})"
            moved = f"{elements(copy)} from {origin} into GPU {copy.target}"
            return f"lane `{copy.lane}` carries {moved}: use `lanes.{road}`"
    return None


def _values_fault(rows: pd.DataFrame, copies: pd.DataFrame, gpus: int) -> str | None:
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


def _bytes_fault(copies: pd.DataFrame, reference: str, elements: int, gpus: int) -> str | None:
    """Over the host links every element passes once, to GPU 0 or an equal share to each GPU; no GPU gets any twice."""
    pulled = copies[copies["origin"] == "host"].groupby("target")["elements"].sum()
    expected = {"0": elements}
    if reference == "scatter_all_gather":
        expected = {str(gpu): elements // gpus for gpu in range(gpus)}
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


def _buffers_fault(copies: pd.DataFrame) -> str | None:
    if (copies[["origin", "target"]] == "elsewhere").to_numpy().any():
        return "it copies through a buffer of its own, which costs memory: the copies themselves can hold every chunk"
    return None


def _clock_fault(rows: pd.DataFrame) -> str | None:
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


def elements(copy: Copy) -> str:
    return f"elements {copy.first} to {copy.end - 1}"


def chunks_fault(graph: Graph, rows: pd.DataFrame, chunks: int, pieces: int) -> str | None:
    """The tensor comes from the host in as many pieces as `chunks` asks for, whatever it is; no copy is larger."""
    fewer, share = int(rows["fewer_chunks"].iloc[0]), pieces // chunks
    pulls = sum(copy.origin == "host" for copy in graph.copies)
    for asked, counted in ((chunks, pulls), (fewer, int(rows["fewer_pulls"].iloc[0]))):
        if counted != asked * share:
            return (
                f"with chunks={asked} the tensor comes from the host in {counted} pieces, not in {asked * share}: cut "
                f"{'it' if share == 1 else 'every share'} with `lanes.parts(…, chunks)`"
            )
    largest = max(graph.copies, key=lambda copy: copy.elements, default=None)
    if largest and largest.elements > graph.chunk_elements:
        return f"one copy moves {elements(largest)}, which is larger than a chunk: hand on chunk by chunk"
    return None


def waits_beside(graph: Graph, ideal: Graph, chunks: int) -> str:
    """Say how long the longest chain is and how many forwards can overlap, beside the reference solution's."""
    measured = len(ideal.copies) > 0
    least = ideal.chunk_times if measured else chunks + 1
    many = f" (of the reference solution's, {ideal.overlapped_forwards})" if measured else ""
    return (
        f"its longest chain of waiting copies takes {graph.chunk_times:.4g} chunk times, the reference solution's "
        f"{least:.4g}; {graph.overlapped_forwards} of {len(graph.forwards)} forwards can run while something comes "
        f"from the host{many}"
    )


def overlap_fault(graph: Graph, ideal: Graph, chunks: int) -> str:
    """Say how much longer the longest chain is than it could be, and why."""
    waits, after = (graph.chunk_times_of(graph.chains(**{kind: False})) for kind in ("waits", "after"))
    neither = graph.chunk_times_of(graph.chains(waits=False, after=False))
    causes = []
    if waits < graph.chunk_times or neither < after:
        causes.append("`lanes.wait()` holds back every later copy: with `after=` a copy waits for one other copy alone")
    if (example := graph.unneeded()) is not None:
        later, earlier = example
        causes.append(
            f"GPU {later.target} gets {elements(later)} only after GPU {earlier.target} has {elements(earlier)}: "
            "pass as `after=` the copy that brings the elements to send, and no other"
        )
    if neither > TOLERANCE * graph.least_chunk_times:
        causes.append("a lane makes its copies in the order you give them: give those first whose elements come first")
    return f"copies wait without need: {waits_beside(graph, ideal, chunks)}; {'; '.join(causes)}"


def _broadcasts(random: Random) -> list:
    """Return elements, GPUs, fewer than four and more, chunks and a seed: chunks divide each GPU's share."""
    drawn = []
    for gpus in random.sample((random.randint(2, 3), 5), 2):
        chunks = random.choice((4, 6, 8))
        drawn.append((gpus * chunks * random.randint(200, 800), gpus, chunks, random.randint(1, 99)))
    return drawn


def _judge_cases(exercise: str, given: list, inputs: list, reference: list) -> Verdict:
    """Return the first verdict that is not "right", else the last one."""
    verdict = None
    for (*sizes, _), *tried in zip(inputs, given, reference, strict=True):
        yours, best = ((pd.DataFrame(each["rows"]), pd.DataFrame(each["spans"], columns=_SPANS)) for each in tried)
        verdict = judge_tables(exercise, exercise, yours, best, *sizes)
        if verdict.outcome != RIGHT:
            break
    assert verdict is not None
    return verdict


def _cases(exercise: str, *solution: str) -> Cases:
    """Return the hidden cases of an exercise: other sizes, numbers of GPUs and chunks than the notebook's."""
    return Cases(
        _broadcasts,
        partial(_judge_cases, exercise),
        driver=f"{_WORKER}.trial",
        reference=solution,
        may_import=(f"{_WORKER}.lanes", f"{_WORKER}.trial"),
        start_s=40.0,  # torch
    )


_PIPELINED = (f"{_WORKER}.methods.pipelined",)
_SCATTER = (f"{_WORKER}.methods.scatter_all_gather", f"{_WORKER}.methods._rounds")

check = Exercises(
    "broadcast",
    Exercise(
        "pipelined",
        check=check_function,
        grade=CORE,
        solution=_PIPELINED,
        cases=_cases("pipelined", *_PIPELINED),
        hints=(
            "Look at what `copy` returns, and at what `after=` takes. One copy must wait for one other copy.",
            "For each part: first a copy from the host to GPU 0. Then one copy from GPU 0 to each other GPU, which "
            "waits for that first copy and for nothing else.",
            "`arrived = lanes.host(0).copy(copies[0][part], source[part])`. Then, for each `gpu` in "
            "`lanes.others(0)`: `lanes.peer(0, gpu).copy(copies[gpu][part], copies[0][part], after=arrived)`.",
        ),
    ),
    Exercise(
        "scatter_all_gather",
        check=check_function,
        grade=STRETCH,
        solution=_SCATTER,
        cases=_cases("scatter_all_gather", *_SCATTER),
        hints=(
            "Which elements does GPU k pull from the host? Draw the tensor as one line, cut into equal shares.",
            "For each GPU: cut its share with `lanes.parts(share, chunks, first=…)`. Each chunk is pulled once, and "
            "sent to all others after it has arrived.",
            "`arrived = lanes.host(gpu).copy(copies[gpu][part], source[part])` for each `part` of `lanes.parts(share,"
            " chunks, first=gpu * share)`. Then, for `other` in `lanes.others(gpu)`: `lanes.peer(gpu, "
            "other).copy(copies[other][part], copies[gpu][part], after=arrived)`.",
        ),
    ),
)
hint, solution, attempts = check.hint, check.solution, check.attempts


def suspects() -> tuple[str, ...]:
    """Return the names of the broken broadcasts, in an order that gives nothing away."""
    return tuple(f"bugs.{name}" for name in neutral_order(SYMPTOMS))


def show_suspects() -> HTML:
    """Show the code that the workers ran for each suspect, under one name, in the order of the letters."""
    return one_below_another(
        [
            code_of(f"lessons.broadcast.bugs.{name}").replace(f"def {name}(", "def broadcast(")
            for name in neutral_order(SYMPTOMS)
        ]
    )


def diagnose(run: Run, named: Mapping[str, str] | None = None) -> Naming | Markdown:
    """Ask which bug each suspect of a Trial run has, and then say it; or say it immediately for a dict by letter."""
    names = [name for name in run.plan.functions if not name.startswith("methods.")]
    verdicts = (judge(name.partition(".")[2], "staged", name, run) for name in names)
    naming = Naming("broadcast", SYMPTOMS, len(names), lambda: verdicts)
    return naming if named is None else naming.reveal(named)


def why_faster() -> HTML:
    """Ask why scatter + all-gather is faster than pipelined."""
    return why(
        "From pinned memory, why is scatter + all-gather faster than pipelined?",
        ("Each host link carries only a share", "All links bring their shares simultaneously, each byte once."),
        ("NVLink is faster than PCIe", "True, but both methods send over NVLink. That is not the difference."),
        ("Its chunks are smaller", "Pipelined gains little from smaller chunks, as a chart below shows."),
    )
