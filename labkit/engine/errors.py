"""What can go wrong with a run, one class each, in the user's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labkit.engine.run import Run


MAKE_ROOM = "Free some space, or set LABKIT_RUNS to a folder on a disk that has some"


class PlanError(ValueError):
    """A knob has a value that it cannot have; the message lists what is allowed."""


class NotEnoughGpus(PlanError):
    """The plan asks for more GPUs than this node shows."""


class ParameterError(PlanError):
    """A parameter of a notebook has a value with which the notebook cannot run; the message says what to set."""

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows: the sentence alone, because the parameter is to blame and no line of code."""
        return [f"{type(self).__name__}: {self}"]


class NowhereToWrite(OSError):
    """The folder that runs go to cannot be written; the message names it and says what to do."""


class RunError(RuntimeError):
    """A run failed: one sentence first, then the culprit's own traceback; `run` keeps every row that was measured.

    Attributes: `rank`, `gpu`, `point` of the culprit (None where unknown), `detail` (its traceback or the table of
    where each rank stood), `logs` (the last lines of every rank), `run` (the Run so far; its `rows` are readable).
    """

    def __init__(
        self,
        sentence: str,
        *,
        run: Run,
        rank: int | None = None,
        point: int | None = None,
        detail: str = "",
        logs: str = "",
    ):
        self.sentence, self.detail, self.logs = sentence, detail, logs
        self.run, self.rank, self.point = run, rank, point
        self.gpu = None if rank is None else run.gpu(rank)
        super().__init__(str(self))

    def __str__(self) -> str:
        rows = len(self.run.rows)
        kept = f"{rows} row{'s were' if rows != 1 else ' was'} measured before that and kept: error.run.rows"
        parts = (self.sentence, self.detail.rstrip(), self.logs, kept, f"logs: {self.run.logs}")
        return "\n\n".join(filter(None, parts))

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the failure of the worker, not the frames of the launcher that reports it."""
        return [f"{type(self).__name__}: {self}"]


class WorkerRaised(RunError):
    """A worker raised an exception."""


class WorkerDied(RunError):
    """A worker's process ended without reporting that it had finished: a signal, an exit, out of memory."""


class WorkerHung(RunError):
    """No rank made progress for longer than the plan's patience, or the run outlasted its time limit."""


class LauncherLost(RunError):
    """torchrun ended, though no worker had failed."""


class Interrupted(KeyboardInterrupt):
    """The user interrupted the cell; `run` keeps the rows measured so far."""

    def __init__(self, run: Run):
        self.run = run
        super().__init__(f"interrupted; {len(run.rows)} rows were measured before that and kept in {run.folder}")
