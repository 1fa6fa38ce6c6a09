"""Cause a failure on purpose, and see what the launcher makes of it."""

from __future__ import annotations

import time
from typing import Any

import pandas as pd

from labkit.engine.errors import RunError
from labkit.engine.processes import members
from labkit.launching import launch
from lessons.start.plan import Failure

_PATIENCE_S = 2.0  # short, so that a hang is found while you watch; a launch of your own waits for three minutes


def cause(kind: str, *, size: str = "auto", gpus: int = 0) -> RunError:
    """Launch a plan in which one rank fails ("raises", "killed", "leaves", "hangs"), and return the error.

    The error also has `seconds`, from the call to the error. Raises PlanError for a kind that is not known.
    """
    plan, begun = Failure.sized(size, gpus=gpus, kind=kind), time.perf_counter()
    try:
        launch(plan, patience_s=_PATIENCE_S)
    except RunError as error:
        vars(error)["seconds"] = time.perf_counter() - begun
        return error
    raise AssertionError(f"a rank that {kind} did not make the run fail")


def failures(errors: list[Any]) -> pd.DataFrame:
    """Return one row per error: what the rank did, the error, that rank and the one blamed, what is left, seconds."""
    rows = [
        (
            error.run.plan.kind,
            type(error).__name__,
            error.run.plan.rank,
            error.rank,
            len(error.run.rows),
            len(members(error.run)),
            round(error.seconds, 1),
        )
        for error in errors
    ]
    columns = ["the_rank", "error", "failed_rank", "blamed_rank", "rows_kept", "processes_left", "seconds"]
    return pd.DataFrame(rows, columns=columns)
