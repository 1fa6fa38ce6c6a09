"""What the fault tests share: launches that fail, and what must hold after each."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import psutil
import pytest
from failing_plan import Failing

from labkit.engine import processes
from labkit.engine.errors import RunError
from labkit.engine.run import Run
from labkit.launching import launch

HERE = Path(__file__).parent
EITHER = pytest.approx(0.5, abs=0.5)  # rank 0 or rank 1: both fail in the same way
MOST_TEXT = 25_000  # characters that a notebook shows of an error
FAILED: list[Run] = []  # since the last launch that did well


def apart_in(folder: Path) -> dict[str, str]:
    """The variables by which runs go to a folder of their own; labs of this folder are on pytest's Python path."""
    return {"LABKIT_RUNS": str(folder / "runs"), "LABKIT_PROGRESS": "0"}


def failed(
    kind: type[RunError],
    *faults: str,
    rank: int | None = 1,
    within_s: float = 55.0,
    patience_s: float = 60.0,
    limit_s: float = 600.0,
    plan: type[Failing] = Failing,
    **knobs,
) -> RunError:
    """Return the error of a launch that fails: in time, of this class, blaming this rank, leaving nothing behind.

    The rows of the points before are kept. That the next launch works, shows `conftest.next_launch`. In time is
    before `patience_s`, which ends what nothing else has ended: five to ten seconds on two cores that do nothing else.
    """
    knobs["rank"] = rank if isinstance(rank, int) else 1
    begun = time.monotonic()
    with pytest.raises(kind) as caught:
        launch(plan(faults=faults or ("none",), **knobs), patience_s=patience_s, limit_s=limit_s)
    error = caught.value
    assert time.monotonic() - begun < within_s
    assert (type(error), error.rank) == (kind, rank), error
    assert error.run.status["why"] == error.sentence
    assert len(str(error)) < MOST_TEXT
    nothing_left(error.run)
    rows = error.run.rows
    for point in range(error.point or 0):
        assert rows.loc[(rows["point"] == point) & (rows["iteration"] == 0), "rank"].nunique() == error.run.plan.gpus
    FAILED.append(error.run)
    return error


def nothing_left(run: Run) -> None:
    """No process of the run lives: none with its mark, and none that recorded its pid and start time."""
    assert not processes.members(run)
    rows = run.rows
    if "pid" in rows:
        for pid, started in rows[["pid", "started"]].dropna().itertuples(index=False):
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(int(pid))
                assert process.status() == psutil.STATUS_ZOMBIE or abs(process.create_time() - started) > 1


def works() -> Run:
    run = launch(Failing())
    assert (run.status["state"], len(run.rows)) == ("finished", 2)
    FAILED.clear()
    return run


def place(text: str, file: str = "failing_raises.py") -> str:
    """The only line of the file that holds the text, as a traceback names it."""
    lines = (HERE / file).read_text().splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if text in line]
    return f'{file}", line {found}, in '
