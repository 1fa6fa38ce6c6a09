"""Cause a failure on purpose, and see what the launcher makes of it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pandas as pd

from labkit.engine.errors import RunError
from labkit.engine.processes import members
from labkit.engine.recordings import replay
from labkit.engine.run import Run
from labkit.launching import launch
from labkit.repository import REPOSITORY
from lessons.start.plan import Failure

_PATIENCE_S = 2.0  # short, so that a hang is found while you watch; a launch of your own waits for three minutes

_ERROR_FILE = "error.json"  # beside the rows of a recorded run that failed
_TEXTS, _FACTS = ("sentence", "detail", "logs"), ("rank", "point", "seconds")


def cause(kind: str, *, size: str = "auto", gpus: int = 0) -> RunError:
    """Launch a plan in which one rank fails ("raises", "killed", "leaves", "hangs"), and return the error.

    The error also has `seconds`, from the call to the error. Raises PlanError for a kind that is not known.
    """
    plan, begun = Failure.sized(size, gpus=gpus, kind=kind), time.perf_counter()
    if plan.recording:
        return recorded_error(replay(plan.recording))
    try:
        launch(plan, patience_s=_PATIENCE_S)
    except RunError as error:
        vars(error)["seconds"] = time.perf_counter() - begun
        return error
    raise AssertionError(f"a rank that {kind} did not make the run fail")


def keep(error: Any, name: str) -> Path:
    """Copy the failed run to data/recorded/<name>, with the error beside it, without this checkout's path."""
    texts = {part: getattr(error, part).replace(f"{REPOSITORY}/", "") for part in _TEXTS}
    facts = {"error": type(error).__name__} | {fact: getattr(error, fact) for fact in _FACTS}
    folder = error.run.keep(name)
    (folder / _ERROR_FILE).write_text(json.dumps(facts | texts, indent=1) + "\n", encoding="utf-8")
    return folder


def recorded_error(run: Run) -> RunError:
    """Return the error of a recorded run that `keep` copied."""
    record = json.loads((run.folder / _ERROR_FILE).read_text(encoding="utf-8"))
    kinds = {kind.__name__: kind for kind in RunError.__subclasses__()}
    kind, seconds, sentence = (record.pop(name) for name in ("error", "seconds", "sentence"))
    error = kinds[kind](sentence, run=run, **record)
    vars(error)["seconds"] = seconds
    return error


def failures(errors: list[Any]) -> pd.DataFrame:
    """Return one row per error: what the rank did, the error, that rank and the one blamed, what is left, seconds."""
    rows = [
        (
            error.run.plan.kind,
            type(error).__name__,
            error.run.plan.rank,
            error.rank,
            len(error.run.rows),
            error.run.status["processes_left"] if error.run.recorded else len(members(error.run)),
            round(error.seconds, 1),
        )
        for error in errors
    ]
    columns = ["the_rank", "error", "failed_rank", "blamed_rank", "rows_kept", "processes_left", "seconds"]
    return pd.DataFrame(rows, columns=columns)
