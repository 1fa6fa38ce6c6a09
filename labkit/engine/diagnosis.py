"""From what the ranks reported of themselves to the first cause of a failure, in one sentence."""

from __future__ import annotations

import errno
import os
import re
import signal
import sysconfig
import textwrap
from collections import defaultdict
from pathlib import Path
from time import monotonic
from time import time as unix_time
from typing import NamedTuple

import psutil

from labkit.engine.errors import (
    MAKE_ROOM,
    GroundLost,
    LauncherLost,
    RunError,
    WorkerDied,
    WorkerHung,
    WorkerRaised,
)
from labkit.engine.json_lines import JsonLines
from labkit.engine.log_text import one_line, reason_in_brief
from labkit.engine.messages import LaunchOutcome
from labkit.engine.run import Run
from labkit.engine.session import Session
from labkit.engine.system_limits import with_limit

EVENT_KEYS = {  # what each event must hold beside its name: a lab may write to the file, too
    "started": ("at", "pid"),
    "clock": (),
    "ready": ("at",),
    "point": ("point",),
    "done": ("point",),
    "restart": ("point",),
    "finished": (),
    "raised": ("at", "point", "kind", "message", "victim", "errno", "traceback", "log_bytes"),
}
END_EVENTS = ("finished", "raised", "restart")  # events with which a rank says itself how it ended
MOST_LOG = 8_000  # bytes of all ranks' logs that an error shows
MOST_MESSAGE = 300
MOST_KNOB = 80  # characters of a knob's value in a sentence
MOST_KNOBS = 600  # of all of them
NO_ROOM_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
SIGNALS = {int(number): number.name for number in signal.Signals}

# In a stack, all code but the lab's: the standard library, installed packages, this engine.
_ENGINE, _PYTHON = (re.escape(f"{folder}/") for folder in (Path(__file__).parent, sysconfig.get_path("stdlib")))
NOT_THE_LAB = re.compile(f"-packages/|^{_ENGINE}|^{_PYTHON}")


class Position(NamedTuple):
    """Where a rank stands, in a few words; whether it waits for other ranks, or has returned and waits for them."""

    text: str
    waits: bool = False
    returned: bool = False


class Diagnosis:
    """What the ranks reported in one launch of a run, and what follows from it; `read` brings what is new.

    It is made before the launch, so that it knows what earlier launches of the run left in its files.
    """

    def __init__(self, run: Run):
        self.run = run
        self.ranks = range(run.plan.gpus)
        self.points = run.plan.points()
        self.events_read = 0  # events
        self.last: dict[int, str] = {}  # the name of each rank's latest event
        self._events: dict[tuple[int, str], list[dict]] = defaultdict(list)
        self._files = [JsonLines(run.events_file(rank), elsewhere=run.node_count > 1) for rank in self.ranks]
        while self.read():
            continue
        self._events.clear()
        self.last.clear()

    def read(self) -> bool:
        """Read what the ranks reported since the last call; return whether there was anything."""
        before = self.events_read
        for rank, file in enumerate(self._files):
            for event in filter(self._is_complete, file.new_objects()):
                if self.run.node_count > 1:  # each node has a monotonic clock of its own; their wall clocks agree
                    event["at"] = event["time"] - (unix_time() - monotonic())
                self._events[rank, event["event"]].append(event)
                self.last[rank] = event["event"]
                self.events_read += 1
        return self.events_read > before

    def _is_complete(self, line: dict) -> bool:
        """Whether a line of a rank's events is an event with all its keys."""
        name = line.get("event")
        if not isinstance(name, str) or name not in EVENT_KEYS:
            return False
        return {*EVENT_KEYS[name], *(["time"] if self.run.node_count > 1 else [])} <= {*line}

    def events(self, rank: int, name: str) -> list[dict]:
        """Return what the rank reported in this launch by that name."""
        return self._events[rank, name]

    def pid(self, rank: int) -> int | None:
        """Return the rank's process; None where it has not started."""
        return next((event["pid"] for event in self.events(rank, "started")), None)

    def has_reported_its_end(self, rank: int) -> bool:
        """Whether the rank itself said how it ended."""
        return any(self.events(rank, name) for name in END_EVENTS)

    def point(self, rank: int) -> int | None:
        """The last point that the rank began; None where it began none."""
        return next((event["point"] for event in reversed(self.events(rank, "point"))), None)

    def culprits(self) -> list[tuple[float, int, dict]]:
        """Return (time, rank, event) of every rank that raised for a reason of its own, the earliest first."""
        return [item for item in self._raised_events() if not item[2]["victim"]]

    def _raised_events(self) -> list[tuple[float, int, dict]]:
        raised = [(event["at"], rank, event) for rank in self.ranks for event in self.events(rank, "raised")]
        return sorted(raised, key=lambda item: item[:2])

    def ground_lost(self, stands_still: bool, session: Session) -> RunError | None:
        """Return the error of a run that stands still, and has no place to meet."""
        why = ""
        if stands_still and (folder := session.folder_lost()):
            why = f"the folder in which the ranks meet, {folder}, was removed while the run went on: launch again. "
            why += "If a cleaner of temporary files did it, set TMPDIR to a folder that it leaves alone"
        if not why and stands_still and (lo := psutil.net_if_stats().get("lo")) and not lo.isup:
            why = "the loopback interface lo is down, and the workers meet there. `ip link set lo up` brings it back"
        return GroundLost(why, run=self.run, logs=self.logs(None)) if why else None

    def first_cause(self, outcome: LaunchOutcome | None, ended_silently: list[int], session: Session) -> RunError:
        """Return the error of an ended launch; `ended_silently` in the order in which that was seen.

        A rank that raised comes first, the earliest of several; then one that died; last one whose own words only
        say that another was gone. `outcome` is what the agent saw, None where it is gone itself or still waits.
        """
        raised = self._raised_events()
        if culprits := self.culprits():
            return self._exception_error(*culprits[0][1:])
        # Where a process could not be forked, those that were are ended with the launch.
        not_launched = outcome and outcome["error"] and not outcome["first"] and not outcome.get("stopped")
        death = None if not_launched else self._first_death(outcome, ended_silently, stopped_too=not raised)
        if session.alive() and death is not None:
            return self._death_error(*death)
        if raised and session.alive():
            return self._exception_error(*raised[0][1:])
        why = with_limit((outcome and outcome["error"]) or session.how_it_ended())
        sentence = f"the process that starts the workers is lost, and no worker had failed: {why}{self._advice()}"
        return LauncherLost(sentence, run=self.run, detail=session.log_tail(), logs=self.logs(None))

    def _exception_error(self, rank: int, event: dict) -> RunError:
        message = with_limit(reason_in_brief(event["message"], MOST_MESSAGE))  # the traceback has the rest
        raised = f"{self.rank_name(rank)} raised {event['kind']}{message and f': {message}'}"
        sentence = f"{raised} {self.point_text(event['point'])}"
        sentence += self._advice(event["errno"] if self._is_in_engine(event["traceback"]) else None)
        facts = {"kind": event["kind"], "message": message, "detail": event["traceback"], "logs": self.logs(rank)}
        return WorkerRaised(sentence, run=self.run, rank=rank, point=event["point"], **facts)

    def _first_death(
        self, outcome: LaunchOutcome | None, ended_silently: list[int], stopped_too: bool
    ) -> tuple[int, int | None] | None:
        """Return (rank, exit status) of the first worker that ended without a word; None where there is none.

        The agent names the failure that it saw first, and then stops the others with SIGTERM.
        """
        outcome = outcome or LaunchOutcome(first=[], error="not told")
        statuses, exits = outcome.get("statuses", {}), outcome.get("exits", {})
        statuses = {rank: statuses.get(str(self.pid(rank)), exits.get(str(rank))) for rank in self.ranks}
        silent = [rank for rank in self.ranks if not self.has_reported_its_end(rank)]
        dead = [
            rank for rank in (*ended_silently, *silent) if rank in silent and (rank in ended_silently or statuses[rank])
        ]
        stopped = [rank for rank in dead if statuses[rank] == -signal.SIGTERM]
        first = [rank for rank in outcome["first"] if rank in silent]
        order = [*first, *(rank for rank in dead if rank not in stopped)]
        if stopped_too:
            unheard = silent if outcome["error"] == "" else []  # all ended well, but the file of its words is lost
            order += [*stopped, *unheard]
        return (order[0], statuses[order[0]]) if order else None

    def _death_error(self, rank: int, status: int | None) -> RunError:
        if not status:
            how = "ended before it had finished, without an error status"
        elif status >= 0:
            how = f"ended with exit status {status} before it had finished"
        else:
            how = f"was killed by {SIGNALS.get(-status, f'signal {-status}')}"
        if status == -signal.SIGKILL:
            how += " (where nobody sent it, the system had run out of memory)"
        point = self.point(rank)
        sentence = f"{self.rank_name(rank)} {how} {self.point_text(point)}{self._advice()}"
        killed_by = -status if status and status < 0 else None
        return WorkerDied(sentence, run=self.run, rank=rank, point=point, signal=killed_by, logs=self.logs(rank))

    @staticmethod
    def _is_in_engine(traceback: str) -> bool:
        """Whether the innermost frame is the engine's, which writes to the run's folder alone."""
        frames = re.findall(r'^ *File "([^"]*)"', traceback, re.M)
        return not frames or re.match(_ENGINE, frames[-1]) is not None

    def _advice(self, number: int | None = None) -> str:
        """Return what to do where the run's folder cannot be written any more."""
        why = os.strerror(number) if number in NO_ROOM_ERRNOS else self.run.unwritable()
        return f"; {self.run.folder} cannot be written: {why}. {MAKE_ROOM}" if why else ""

    def logs(self, culprit: int | None) -> str:
        """Show the head and tail of what every rank printed, most of the culprit's; tracebacks stand for themselves."""
        printed = []
        for rank in self.ranks:
            before_traceback = next((event["log_bytes"] for event in self.events(rank, "raised")), None)
            most = MOST_LOG // 2 if rank == culprit else MOST_LOG // 2 // len(self.ranks)
            if text := self.run.excerpt(rank, most, end=before_traceback).strip("\n"):
                printed.append(f"{self.rank_name(rank)} printed:\n{textwrap.indent(text, '    ')}")
        return "\n".join(printed) or "no rank printed anything"

    def hung(self, why: str, session: Session, woken: tuple[int, ...] = ()) -> RunError:
        """Return the error of a launch that stands still, from the stacks just dumped.

        The culprit waits for no other rank: it stands elsewhere, or has finished, which ends no other rank's wait. One
        that has returned is named where nobody stands elsewhere: it may have left the others in a collective.
        `woken`: ranks that have reported their end since they were asked. Of ranks that were never started, only the
        agent knows why.
        """
        positions = [self._stack_position(rank) if rank in woken else self.position_of(rank) for rank in self.ranks]
        standing = [position.text for position in positions]
        silent = [rank for rank in self.ranks if rank in woken or not self.has_reported_its_end(rank)] or [0]
        finished = [rank for rank in self.ranks if rank not in silent and self.last[rank] == "finished"]
        elsewhere = [rank for rank in silent if not positions[rank].waits]
        elsewhere.sort(key=lambda rank: positions[rank].returned)
        # One that was freed before it wrote its stack may have left its points.
        kept = [rank for rank in elsewhere if rank not in woken or "in measure_points" in self._stack(rank)]
        rank = [*kept, *elsewhere, *finished, *silent][0]
        if rank in finished:
            standing[rank] += " early, and joins no collective any more"
        for each in woken:
            standing[each] += f", and has {self.last[each]} since it was asked for its stack"
        point = self.point(rank)
        all_stand = "; ".join(f"rank {rank} {text}" for rank, text in enumerate(standing))
        sentence = f"{why} {self.point_text(point)}: {all_stand}"
        if not self.last and (reason := session.last_error()):
            sentence += f"; the process that starts the workers met {with_limit(reason)}"
        elif not self.last and session.is_stopped():
            sentence += f"; the process that starts the workers, {session.pid}, was stopped (SIGSTOP)"
        if woken:
            sentence += "; the signal that asks for stacks (SIGUSR1) interrupted the wait"
        detail, logs = f"{self._position_table(standing)}\n\n{self._stack(rank)}", self.logs(rank)
        return WorkerHung(sentence, run=self.run, rank=rank, point=point, detail=detail, logs=logs)

    def _position_table(self, standing: list[str]) -> str:
        rows = [("rank", "GPU", "point", "where it stands")]
        rows += [(rank, self.run.gpu(rank), self.point(rank), text) for rank, text in enumerate(standing)]
        cells = [["–" if cell is None else cell for cell in row] for row in rows]
        return "\n".join("{:>4}  {:>3}  {:>5}  {}".format(*row) for row in cells)

    def every_rank_waits(self) -> bool:
        """Whether no rank is at work, by the stacks just dumped: each waits for another one."""
        return all(position.waits or position.returned for position in map(self.position_of, self.ranks))

    def position_of(self, rank: int) -> Position:
        """Return where the rank is: the innermost line of the lab's own code, and what that called."""
        if rank not in self.last:
            return Position("has not started")
        if self.has_reported_its_end(rank):
            return Position(f"has {self.last[rank]}")
        return self._stack_position(rank)

    def _stack_position(self, rank: int) -> Position:
        """Return `position_of` a rank that had not ended when its stack was dumped."""
        frames = re.findall(r'File "([^<"][^"]*)", line (\d+) in (\S+)', self._stack(rank))
        first_own_frame = next((i for i, (path, *_) in enumerate(frames) if not NOT_THE_LAB.search(path)), None)
        if first_own_frame is None:
            if any(name in ("join", "barrier") for *_, name in frames):
                return Position("waits for the others to get ready", waits=True)
            if any(name == "agree" for *_, name in frames):
                return Position("has returned, and waits for the others to end this point", returned=True)
            unanswered = "" if frames else ", and answers no signal: it may be stopped"
            return Position(f"is past {self.last[rank]!r}{unanswered}")
        path, line, function = frames[first_own_frame]
        # torch logs its collectives in a function called "wrapper"
        called = [name for *_, name in reversed(frames[:first_own_frame]) if name != "wrapper"]
        if not called:
            return Position(f"is at {_short(path)}:{line} in {function}")
        if called[0] == "<module>":
            return Position(f"is importing ({_short(path)}:{line})")
        # a rank that waits for NCCL is in torch.cuda.synchronize()
        waits = any(re.search("torch/(distributed|cuda)", path) for path, *_ in frames[:first_own_frame])
        return Position(f"{'waits' if waits else 'is'} in {called[0]} ({_short(path)}:{line})", waits)

    def _stack(self, rank: int) -> str:
        """The main thread's part of the rank's dumped stack; faulthandler writes the oldest thread last."""
        file = self.run.stack_file(rank)
        text = file.read_text(encoding="utf-8", errors="replace") if os.path.isfile(file) else ""
        return re.split(r"^(?:Current thread|Thread) .*\n", text, flags=re.M)[-1]

    def stack_is_complete(self, rank: int) -> bool:
        """Whether the dumped stack reaches the main thread's outermost frame, or what faulthandler writes instead.

        That is "..." at the depth at which it is cut, and "<invalid frame>" at a frame that Python 3.14 cannot read.
        """
        last_line = r"(in <module>|in _run_module_as_main|^  \.\.\.|^  <.+>)\n$"
        return re.search(last_line, self._stack(rank), re.M) is not None

    def rank_name(self, rank: int) -> str:
        return self.run.rank_name(rank)

    def point_text(self, point: int | None) -> str:
        if point is None:
            return "before the first point"
        knobs = {name: one_line(str(value), MOST_KNOB) for name, value in vars(self.points[point]).items()}
        shown = ", ".join(f"{name}={value}" for name, value in knobs.items() if name != "point")
        return f"at point {point} ({one_line(shown, MOST_KNOBS)})"


def _short(path: str) -> str:
    """A file's name; for a package's __init__.py, the package's too."""
    file = Path(path)
    return f"{file.parent.name}/{file.name}" if file.name == "__init__.py" else file.name
