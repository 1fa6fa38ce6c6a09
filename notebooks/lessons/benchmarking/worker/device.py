"""A simulated device, whose right times are known exactly, and what a student's `timed` does with it.

Imports nothing of labkit but how a function's result is read: it also runs where an answer is graded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from itertools import count
from typing import Any

from labkit.engine.function import Prints, Unreadable, as_json

HOST_S = 0.0001  # what the host takes to launch a step
_READ_S = 1e-7
_RAISES_AT = 3
MESSAGE = "the GPU is out of memory"


def _slow_first() -> Iterator[float]:
    yield from (0.5, 0.05)
    while True:
        yield 0.010


def _noisy() -> Iterator[float]:
    """Yield 10 ms, give or take a little; one call in eleven takes 60 ms."""
    for number in count():
        yield 0.060 if number % 11 == 6 else 0.010 + 0.0002 * (number % 4)


def _steady() -> Iterator[float]:
    while True:
        yield 0.010


_SECONDS: dict[str, Callable[[], Iterator[float]]] = {
    "asynchronous": _steady,
    "slow_first": _slow_first,
    "noisy": _noisy,
    "raises": _steady,
}


class Device:
    """A host and a GPU in simulated time: `step` launches work and returns, `synchronize` waits, `clock` is read.

    `took` has what each step needs from launch to end on an idle device. `busy_starts`: steps launched by a clock that
    was read while earlier work was under way; `busy_stops`: readings after a step that was not done. Every step
    takes `scale` times as long as elsewhere.
    """

    def __init__(self, situation: str, scale: float = 1.0):
        self.situation, self.seconds, self.scale = situation, _SECONDS[situation](), scale
        self.now, self.free = 0.0, 0.0
        self.took: list[float] = []
        self.reads, self.busy_starts, self.busy_stops = 0, 0, 0
        self._stepped, self._read_busy = False, False  # since the last reading; at it

    def step(self) -> None:
        """Launch one step of the work."""
        if self.situation == "raises" and len(self.took) + 1 == _RAISES_AT:
            raise RuntimeError(MESSAGE)
        self.busy_starts += self._read_busy and not self._stepped
        needs = self.scale * next(self.seconds)
        self.now += HOST_S
        self.free = max(self.now, self.free) + needs
        self.took.append(HOST_S + needs)
        self._stepped = True

    def synchronize(self) -> None:
        """Wait until all work is done."""
        self.now = max(self.now, self.free)
        self._read_busy = False

    def clock(self) -> float:
        """Return the seconds of simulated time."""
        self.reads += 1
        self.now += _READ_S
        self._read_busy = self.free > self.now
        self.busy_stops += self._stepped and self._read_busy and self.reads > 1  # the first one is a start
        self._stepped = False
        return self.now


def drive(timed: Callable[..., Any], situation: str, scale: float = 1.0) -> dict[str, Any]:
    """Return what `timed` gave for one kind of step, how it measured, and the true times."""
    device, prints = Device(situation, scale), Prints()
    seen: dict[str, Any] = {"situation": situation}
    try:
        with redirect_stdout(prints):
            seen["given"] = as_json(timed(device.step, device.synchronize, device.clock))
    except Unreadable as error:
        seen["unreadable"] = str(error)
    except RuntimeError as error:
        if MESSAGE not in str(error) or situation != "raises":
            raise
        seen["raised"] = type(error).__name__
    counts = {name: getattr(device, name) for name in ("reads", "busy_starts", "busy_stops", "took")}
    return seen | prints.column() | {"calls": len(device.took)} | counts
