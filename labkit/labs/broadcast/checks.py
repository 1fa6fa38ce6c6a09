"""Check a broadcast that somebody wrote, by what it did: every copy that it asked for was logged."""

from __future__ import annotations

import pandas as pd
from IPython.display import Markdown

from labkit.course import answers
from labkit.course.exercise import judges_answers, launched, unanswered
from labkit.course.lineup import diagnosed, lined_up
from labkit.course.verdict import RIGHT, WRONG, Verdict
from labkit.labs.broadcast.bugs import SYMPTOMS
from labkit.labs.broadcast.plan import CHUNKED, Trial
from labkit.ui import units

EXERCISES = CHUNKED


@judges_answers
def check(exercise: str, *, size: str = "small", gpus: int = 0, patience_s: float = 20.0) -> Verdict:
    """Launch the student's answer to `exercise` ("pipelined", "scatter_all_gather") or a bug by its name, and judge it.

    Right values on every GPU, nothing forwarded before it arrived, every byte over the host links once, overlap, no
    buffers of its own; then its time beside the workbook's own. Raises ValueError for an unknown exercise.
    """
    if exercise not in (*CHUNKED, *SYMPTOMS):
        raise ValueError(f"{exercise!r} is no exercise; there are {', '.join((*CHUNKED, *SYMPTOMS))}")
    own = exercise if exercise in CHUNKED else "pipelined"
    function = f"{'answers' if exercise in CHUNKED else 'bugs'}.{exercise}"
    if exercise in CHUNKED and (verdict := unanswered(f"broadcast.{exercise}")) is not None:
        return verdict
    functions = (f"methods.{own}", function)
    plan = Trial.sized(size, gpus=gpus, functions=functions, answers=str(answers.folder()))
    run = launched(exercise, plan, patience_s, "it waits for something that never happens")
    return run if isinstance(run, Verdict) else judge(exercise, own, function, run)


def judge(exercise: str, own: str, function: str, run) -> Verdict:
    """Give the verdict on `function` from a Trial's rows and spans, with the workbook's `own` beside it."""
    rows, copies = run.rows[run.rows["function"] == function], run.spans[run.spans["function"] == function]
    elements, gpus = run.plan.elements, run.plan.gpus
    found = {
        "source_reused": _source(rows),
        "early_forward": _order(copies),
        "wrong_copy": _values(rows),
        "bytes": _bytes(copies, own, elements, gpus),
        "no_overlap": _overlap(copies),
        "own_buffer": _buffers(copies),
        "unsynchronised": _clock(rows),
    }
    faults = {kind: sentence for kind, sentence in found.items() if sentence}
    # A forward that came too early, or a source that changed, explains the wrong values: name the cause alone.
    if faults.keys() & {"source_reused", "early_forward"}:
        faults.pop("wrong_copy", None)
    good = rows[~rows["warm_up"].astype(bool)]["seconds"].median()
    mine = run.rows[(run.rows["function"] == f"methods.{own}") & ~run.rows["warm_up"].astype(bool)]["seconds"].median()
    merits = () if faults else (
        f"all {gpus} copies equal the source, every byte crossed the host links once, and forwarding overlaps",
        f"it took {units.seconds(good)}, the workbook's own {units.seconds(mine)}: {units.times(good / mine)} its time",
    )  # fmt: skip
    return Verdict(exercise, WRONG if faults else RIGHT, faults, merits)


def _source(rows: pd.DataFrame) -> str | None:
    if rows["source_changed"].any():
        return "the source changed while copies were still reading it: wait for the lanes before you reuse a buffer"
    return None


def _order(copies: pd.DataFrame) -> str | None:
    """A copy out of a GPU's buffer must wait, directly or through its lane's order, for what filled that part."""
    known = copies.set_index("index")
    for index, copy in known.iterrows():
        if copy["origin"] in ("host", "elsewhere"):
            continue
        before = _awaited(known, index)
        filled = set()
        for earlier in before:
            if known.loc[earlier, "target"] == copy["origin"]:
                start = known.loc[earlier, "first"]
                filled.add((start, start + known.loc[earlier, "elements"]))
        if not _covers(filled, copy["first"], copy["first"] + copy["elements"]):
            elements = f"elements {copy['first']} to {copy['first'] + copy['elements'] - 1}"
            return (
                f"GPU {copy['target']} is sent {elements} from GPU {copy['origin']} without waiting for them to arrive "
                "there: pass `after=` the copy that brings them"
            )
    return None


def _awaited(known: pd.DataFrame, index: int) -> set[int]:
    """Give every copy that is certainly over before copy `index` starts: those named in `after`, those before them on
    a lane, and so on."""
    done: set[int] = set()
    lane = known["lane"]
    todo = [*known.loc[index, "after"], *[i for i in known.index if i < index and lane[i] == lane[index]]]
    while todo:
        if (at := todo.pop()) not in done:
            done.add(at)
            todo += [*known.loc[at, "after"], *[i for i in known.index if i < at and lane[i] == lane[at]]]
    return done


def _covers(parts: set[tuple[int, int]], first: int, end: int) -> bool:
    for start, stop in sorted(parts):
        if start <= first < stop:
            first = stop
    return first >= end


def _values(rows: pd.DataFrame) -> str | None:
    wrong = rows[rows["status"] != "ok"]
    if wrong.empty:
        return None
    return f"{wrong['status'].iloc[0]} in {len(wrong)} of {len(rows)} repeats: compare `parts` and buffers"


def _bytes(copies: pd.DataFrame, own: str, elements: int, gpus: int) -> str | None:
    """Over the host links every element passes once: to GPU 0, or an equal share to each GPU."""
    pulled = copies[copies["origin"] == "host"].groupby("target")["elements"].sum()
    expected = {"0": elements} if own == "pipelined" else {str(gpu): elements // gpus for gpu in range(gpus)}
    if dict(pulled) == expected:
        return None
    total = pulled.sum() / elements
    return (
        f"the host links carried {total:.2f} × the tensor, to GPU(s) {', '.join(pulled.index) or 'none'}; "
        f"here each element should cross once, to GPU(s) {', '.join(expected)}"
    )


def _overlap(copies: pd.DataFrame) -> str | None:
    """The first forward must not wait for the last chunk from the host."""
    pulls, forwards = copies[copies["origin"] == "host"], copies[~copies["origin"].isin(["host", "elsewhere"])]
    if pulls.empty or forwards.empty:
        return None
    first = _awaited(copies.set_index("index"), forwards["index"].iloc[0])
    if set(pulls["index"]) <= first:
        return "nothing overlaps: the first forward waits until all has come from the host; forward chunk by chunk"
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
        f"its own clock stopped at {units.seconds(row['claimed_seconds'])} with {row['in_flight']:.0f} copies still in "
        f"flight; the synchronised one says {units.seconds(row['seconds'])}: wait for the lanes before the clock stops"
    )


def suspects() -> tuple[str, ...]:
    """Give the names of the broken broadcasts, in an order that gives nothing away."""
    return tuple(f"bugs.{name}" for name in lined_up(SYMPTOMS))


def diagnose(run) -> Markdown:
    """Give the verdicts on all functions of a Trial run at once: what the check would say of each."""
    names = [name for name in run.plan.functions if not name.startswith("methods.")]
    return diagnosed(judge(name.partition(".")[2], "pipelined", name, run) for name in names)
