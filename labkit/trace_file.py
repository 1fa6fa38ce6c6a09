"""A run's timelines as a file that Perfetto opens: every span of every rank, to zoom into."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from IPython.display import Markdown

from labkit.engine.run_folder import runs_folder

if TYPE_CHECKING:
    import pandas as pd

    from labkit.engine.run import Run

_PROCESS = ("point", "step")  # of which each has a clock of its own
_OF_THE_SPAN = {*_PROCESS, "rank", "gpu", "span", "lane", "start_us", "end_us", "status", "warm_up"}
_AT_ONCE_US = 0.01  # spans whose ends overlap by less than the clock's grain follow each other


def save_trace(run: Run) -> Markdown:
    """Write the run's spans to traces/<lab>-<plan>.json.gz in the folder of runs, and say how to open it.

    The format is the Trace Event Format of Chrome: a process per point and step, whose time counts from its first span,
    and per lane as many threads as spans run at once. Raises OSError where nothing can be written.
    """
    spans = run.spans
    if spans.empty:
        return Markdown("This run has no timeline.")
    folder = runs_folder() / "traces"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / f"{run.plan.lab}-{run.plan.name}.json.gz"
    text = json.dumps({"traceEvents": [*_events(spans)], "displayTimeUnit": "ms"})
    file.write_bytes(gzip.compress(text.encode(), mtime=0))
    return Markdown(
        f"Every span, to zoom into: open `traces/{file.name}`, in the folder of your runs, at "
        "[ui.perfetto.dev](https://ui.perfetto.dev) (*Open trace file*; it stays in your browser)."
    )


def _events(spans: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Return the spans as complete events, with the names of their processes and threads."""
    told = [name for name in spans if name not in _OF_THE_SPAN]
    counts = spans.groupby("point")[told].nunique(dropna=False).max()
    of_points, of_spans = ([name for name in told if bool(counts[name] == 1) is alike] for alike in (True, False))
    knobs = [name for name in of_points if len(spans[name].drop_duplicates()) > 1]
    for process, (_, of_process) in enumerate(spans.groupby([name for name in _PROCESS if name in spans], sort=True)):
        first = of_process.iloc[0]
        setting = ", ".join(f"{name}={first[name]}" for name in (*knobs, *_PROCESS) if name in spans)
        yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": setting}}
        zero_us, number = of_process["start_us"].min(), 0
        for lane, of_lane in of_process.groupby("lane", sort=True):
            ends_us: list[float] = []
            for row in of_lane.sort_values(["start_us", "end_us"]).to_dict("records"):
                thread = _first_free(ends_us, row["start_us"])
                ends_us[thread:] = [row["end_us"], *ends_us[thread + 1 :]]
                more = {name: row[name] for name in of_spans if row[name] == row[name] and row[name] != ""}
                yield {"ph": "X", "pid": process, "tid": number + thread, "name": _name(row["span"], more)} | {
                    "ts": round(row["start_us"] - zero_us, 3),
                    "dur": round(row["end_us"] - row["start_us"], 3),
                    "args": more,
                }
            for thread in range(number, number + len(ends_us)):
                yield {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": str(lane)}}
            number += len(ends_us)


def _first_free(ends_us: list[float], start_us: float) -> int:
    """Return the first thread on which nothing runs any more, or the number of a new one."""
    free = (thread for thread, end_us in enumerate(ends_us) if end_us <= start_us + _AT_ONCE_US)
    return next(free, len(ends_us))


def _name(span: str, more: dict[str, Any]) -> str:
    """Return the span's name, and what it moves or which micro-batch it is of."""
    return " ".join([span, *(str(more[name]) for name in ("collective", "micro_batch") if name in more)])
