"""A simulated device, whose right times are known exactly: a host launches steps, waits for them and reads a clock.

Imports nothing: it also runs where an answer is graded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count

HOST_S = 0.0001  # what the host takes to launch a step
_READ_S = 1e-7
RAISES_AT = {"raises": 3, "raises_later": 6, "raises_late": 12}  # in a warm-up, or among what is measured
MOST_CALLS = 100_000  # that are made again: an answer may claim any number
MESSAGE = "the GPU is out of memory"


def _slow_first() -> Iterator[float]:
    yield from (0.5, 0.05)
    while True:
        yield 0.010


def _noisy() -> Iterator[float]:
    """Yield 10 to 13 ms, 18 ms in one call of three, 60 ms in one of eleven.

    Of some ten calls in turn least, quartiles, mean, trimmed mean and median differ, and so do the middle two.
    """
    for number in count():
        yield 0.060 if number % 11 == 6 else 0.018 if number % 3 == 0 else 0.010 + 0.003 * (number * 11 % 17) / 17


def _steady() -> Iterator[float]:
    while True:
        yield 0.010


_SECONDS: dict[str, Callable[[], Iterator[float]]] = {
    "asynchronous": _steady,
    "slow_first": _slow_first,
    "noisy": _noisy,
    **dict.fromkeys(RAISES_AT, _steady),
}
SITUATIONS = tuple(_SECONDS)


class Device:
    """A host and a GPU in simulated time: `step` launches work and returns, `synchronize` waits, `clock` is read.

    `calls` has a letter for each call of its three methods, and `took` what each step needs from launch to end on an
    idle device. `alone`: steps with a reading of the clock right before and right after them. `busy_starts`: steps
    launched by a clock that was read while earlier work was under way; `busy_stops`: readings after a step that was
    not done. `failed`: steps that raised. Every step takes `scale` times as long as elsewhere.
    """

    def __init__(self, situation: str, scale: float = 1.0):
        self.situation, self.seconds, self.scale = situation, _SECONDS[situation](), scale
        self.now, self.free = 0.0, 0.0
        self.calls: list[str] = []
        self.took: list[float] = []
        self.reads, self.alone, self.busy_starts, self.busy_stops, self.failed = 0, 0, 0, 0, 0
        self._steps, self._read_busy = 0, False  # since the last reading; at it

    def step(self) -> None:
        """Launch one step of the work."""
        self.calls.append("s")
        if len(self.took) + 1 == RAISES_AT.get(self.situation) and not self.failed:
            self.failed += 1
            raise RuntimeError(MESSAGE)
        self.busy_starts += self._read_busy and not self._steps
        needs = self.scale * next(self.seconds)
        self.now += HOST_S
        self.free = max(self.now, self.free) + needs
        self.took.append(HOST_S + needs)
        self._steps += 1

    def synchronize(self) -> None:
        """Wait until all work is done."""
        self.calls.append("w")
        self.now = max(self.now, self.free)

    def clock(self) -> float:
        """Return the seconds of simulated time."""
        self.calls.append("c")
        self.alone += self._steps == 1 and self.reads > 0
        self.reads += 1
        self.now += _READ_S
        self._read_busy = self.free > self.now
        self.busy_stops += self._steps > 0 and self._read_busy and self.reads > 1  # the first is a start
        self._steps = 0
        return self.now


def replayed(calls: str, situation: str, scale: float = 1.0) -> Device:
    """Return a fresh device after the given calls. Raises KeyError for what is no call."""
    device = Device(situation, scale)
    methods = {"s": device.step, "w": device.synchronize, "c": device.clock}
    for letter in calls[:MOST_CALLS]:
        with suppress(RuntimeError):
            methods[letter]()
    return device
