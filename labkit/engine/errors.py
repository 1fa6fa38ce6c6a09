"""What can go wrong with a run, one class each, in the user's words."""

from __future__ import annotations

import linecache
import sys
import warnings
from functools import partial
from pathlib import Path
from traceback import walk_tb
from typing import Any, Protocol, Self

from labkit.engine.log_text import one_line

MAKE_ROOM = "Free some space, or set LABKIT_RUNS to a folder on a disk that has some"
MOST_SENTENCE = 4_000  # characters: where each of many ranks stands takes some


class RunSoFar(Protocol):
    """What an error needs of a run (run.Run), and what its reader does."""

    folder: Path

    @property
    def logs(self) -> Path: ...

    @property
    def rows(self) -> Any: ...

    @property
    def status(self) -> dict[str, Any]: ...

    def node_index(self, rank: int) -> int: ...

    def gpu(self, rank: int) -> int | None: ...

    def tally(self) -> dict[str, Any]: ...


class ShownAsSentence(BaseException):
    """An exception of which a notebook shows the message, below the reader's own lines that led to it.

    No frame of the code that raises it says more.
    """

    def _render_traceback_(self) -> list[str]:
        places = [
            (number, linecache.getline(frame.f_code.co_filename, number).strip())
            for frame, number in walk_tb(self.__traceback__)
            if frame.f_globals.get("__name__") == "__main__"
        ]
        # A line of IPython's own stands in place of a magic.
        own = [f"----> {number} {line}" for number, line in places if line and not line.startswith("get_ipython()")]
        return [*own, f"{type(self).__name__}: {self}"]


class PlanError(ShownAsSentence, ValueError):
    """A knob has a value that it cannot have; the message lists what is allowed."""


class NotEnoughGpus(PlanError):
    """The plan asks for more GPUs than this node shows."""


class ParameterError(PlanError):
    """A parameter of a notebook has a value with which the notebook cannot run; the message says what to set."""


class NowhereToWrite(ShownAsSentence, OSError):
    """The folder that runs go to cannot be written; the message names it and says what to do."""


class DamagedRun(ValueError):
    """A file of a run's folder cannot be read; the message names the file and says why."""


class RunError(ShownAsSentence, RuntimeError):
    """A run failed: one sentence first, then the culprit's own traceback; `run` keeps every row that was measured.

    Attributes: `rank`, `node` (from 0), `gpu`, `point` of the culprit (None where unknown); of what it raised, `kind`
    (the exception's class) and `message`; `signal` (the number that killed it); `detail` (its traceback or the table
    of where each rank stood), `logs` (the last lines of every rank), `run` (the Run so far; its `rows` are readable).
    """

    def __init__(
        self,
        sentence: str,
        *,
        run: RunSoFar,
        rank: int | None = None,
        point: int | None = None,
        kind: str = "",
        message: str = "",
        signal: int | None = None,
        detail: str = "",
        logs: str = "",
    ):
        self.sentence, self.detail, self.logs = one_line(sentence, MOST_SENTENCE), detail, logs
        self.kind, self.message, self.signal = kind, message, signal
        self.run, self.rank, self.point = run, rank, point
        self.node = None if rank is None else run.node_index(rank)
        self.gpu = None if rank is None else run.gpu(rank)
        super().__init__(str(self))

    def __str__(self) -> str:
        measured = self.run.tally()
        rows = measured["rows"]
        kept = f"{rows} row{'s were' if rows != 1 else ' was'} measured before that and kept: error.run.rows"
        if problem := measured.get("problem"):
            kept = f"the rows that were measured before that cannot be read now: {problem}"
        elif not self.run.folder.exists():
            kept = "the rows that were measured before that are lost with the folder"
        parts = (self.sentence, self.detail.rstrip(), self.logs, kept, f"logs: {self.run.logs}")
        return "\n\n".join(filter(None, parts))

    def __reduce__(self) -> tuple:
        """Let a process pool bring the error home: with the run's folder, not with its rows."""
        return partial(type(self), self.sentence, run=self.run, **self._facts()), ()

    def reworded(self, sentence: str) -> Self:
        """Return the error with another sentence."""
        return type(self)(sentence, run=self.run, **self._facts())

    def _facts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("rank", "point", "kind", "message", "signal", "detail", "logs")}


class WorkerRaised(RunError):
    """A worker raised an exception."""


class WorkerDied(RunError):
    """A worker's process ended without reporting that it had finished: a signal, an exit, out of memory."""


class WorkerHung(RunError):
    """No rank made progress for longer than the plan's patience, or the run outlasted its time limit."""


class LauncherLost(RunError):
    """The agent that starts the workers is lost, or cannot start them: no worker had failed."""


class GroundLost(RunError):
    """What the run stands on was taken away while it went on: its folder, the loopback interface, the place to meet."""


class JobEnded(RunError):
    """Slurm, or whoever controls it, has ended the job while the run went on: time limit, preemption, cancellation."""


class ClusterError(ShownAsSentence, RuntimeError):
    """Nothing was started on the nodes: a wrong setting, no allocation, no station; one sentence says which."""


class Interrupted(ShownAsSentence, KeyboardInterrupt):
    """The user interrupted the cell; `run` keeps the rows measured so far."""

    def __init__(self, run: RunSoFar):
        self.run = run
        rows = run.tally()["rows"]
        super().__init__(f"interrupted; {rows} rows were measured before that and kept in {run.folder}")

    def __reduce__(self) -> tuple:
        return type(self), (self.run,)


class NotStarted(ShownAsSentence, KeyboardInterrupt):
    """The user interrupted a launch while it waited for GPUs; there is no run of it."""


def notice(text: str, stacklevel: int = 1) -> None:
    """Warn of something; under `python -W error`, where a warning would end the launch, print it."""
    try:
        warnings.warn(text, stacklevel=stacklevel + 1)
    except UserWarning:
        print(f"UserWarning: {text}", file=sys.stderr)
