"""The thread of the agent that looks at host and GPUs before, during and after a launch, and writes what it saw."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

from labkit.engine.errors import DamagedRun
from labkit.engine.json_lines import open_to_append, read_lines
from labkit.engine.run import Run
from labkit.node import Gpu, host
from labkit.node.conditions import Conditions, RankState, Snapshot
from labkit.node.counters import Counters
from labkit.node.gpus import nvml

CONDITIONS = "LABKIT_CONDITIONS"  # environment variable: 0 measures no conditions, which tells what they cost
INTERVAL_SECONDS = 0.25
MOST_LOOKS = 600  # as many in each doubling of a run's length: the series of a long run stays small
MOST_SHARE = 0.008  # of a core for the looks during a run
STOP_SECONDS = 0.8  # for the last look; a driver that does not answer holds nobody up longer
FORGET_SECONDS = 0.3  # for the driver to forget processes that have just ended
JUMP_SECONDS = 1.0  # by which the wall clock may differ from the monotonic clock


class Sampler:
    """Looks at the machine from its making until `stop`; `gpus` are (index, UUID), None to look at nothing.

    A run that takes several launches has one conditions.json: the first look is the first launch's. `ranks` are those
    of this node, first and one past the last, where the run has others elsewhere.
    """

    def __init__(self, run: Run, gpus: Sequence[tuple[int, str | None]] | None, ranks: tuple[int, int] | None = None):
        self._gpus, self._over, self._here = gpus, threading.Event(), range(*ranks) if ranks else None
        self._run = run
        self._samples_taken, self._spent, self._notes, self._silent = 0, 0.0, [], set()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        if gpus is not None:
            with suppress(RuntimeError):  # no thread is to be had
                self._thread.start()

    def stop(self) -> None:
        """Look a last time, and write down everything; the launch's processes have ended."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def _watch(self) -> None:
        with suppress(OSError, DamagedRun), ExitStack() as stack:
            works = stack.enter_context(nvml()) if self._gpus else True
            if not works:
                self._note("NVML does not answer, so the state of the GPUs is not known")
            counters = [Counters(Gpu(index, uuid=uuid)) for index, uuid in self._gpus or ()] if works else []
            self._sample_until_over(counters)

    def _sample_until_over(self, counters: list[Counters]) -> None:
        earlier = self._run.kept_conditions()
        wall, clock = time.time(), time.monotonic()
        began = Conditions(began_monotonic_s=clock)
        conditions = earlier if earlier.began_monotonic_s is not None else began
        if conditions is began:
            conditions = replace(began, before=_snapshot(counters))
            self._note_slices(conditions.before)
            self._run.keep_conditions(conditions.to_json())
        start, earlier_costs = conditions.began_monotonic_s or clock, conditions.sampling
        with suppress(OSError), open_to_append(self._run.samples_file) as file:  # the disk may be full
            for at_s in self._ticks(start):
                for sample in self._sample(counters, at_s):
                    file.write(json.dumps(sample) + "\n")
        self._over.wait()
        moved = (time.time() - wall) - (time.monotonic() - clock)
        if abs(moved) > JUMP_SECONDS:
            self._note(f"the wall clock moved by {moved:+.0f} s during the run: its dates may be wrong")
        after = replace(_snapshot(counters), ranks=self._ranks("finished"))
        costs = {"samples": self._samples_taken, "cpu_seconds": self._spent}
        self._run.keep_conditions(
            replace(
                conditions,
                before=replace(conditions.before, ranks=self._ranks("ready")),
                after=after,
                seconds=round(time.monotonic() - start, 3),
                points=self._points(start),
                sampling={name: round(cost + earlier_costs.get(name, 0), 4) for name, cost in costs.items()},
                notes=(*conditions.notes, *self._notes),
            ).to_json()
        )

    def _ticks(self, start: float) -> Iterator[float]:
        """Yield the time of each look in seconds since `start`, until the launch is over.

        Looks become rarer as a run grows long, and where they take more than MOST_SHARE of a core.
        """
        host.sample()  # the load is counted from here on
        while True:
            begun, spent = time.monotonic(), time.thread_time()
            yield round(begun - start, 3)
            self._samples_taken += 1
            cost = time.thread_time() - spent
            self._spent += cost
            pause = max(INTERVAL_SECONDS, (begun - start) / MOST_LOOKS, cost / MOST_SHARE)
            if self._over.wait(begun + pause - time.monotonic()):
                return

    def _sample(self, counters: list[Counters], at_s: float) -> Iterator[dict[str, Any]]:
        """Yield what host and GPUs show now."""
        if self._samples_taken:  # nothing has been counted at the first look
            yield {"at_s": at_s, "gpu": None, **host.sample()}
        for counter in counters:
            index, sample = counter.gpu.index, counter.sample()
            if sample:
                yield {"at_s": at_s, "gpu": index, **sample}
            elif index not in self._silent:
                self._silent.add(index)
                self._note(f"GPU {index} does not answer from {at_s:.1f} s on")

    def _note_slices(self, snapshot: Snapshot) -> None:
        for gpu, (index, uuid) in zip(snapshot.gpus, self._gpus or (), strict=False):
            if (uuid or "").startswith("MIG-") and gpu.utilisation_percent is None:
                self._note(f"the device on GPU {index} is a MIG slice, whose utilisation the driver does not tell")

    def _note(self, sentence: str) -> None:
        self._notes.append(sentence)

    def _ranks(self, event_name: str) -> tuple[RankState, ...]:
        """Return what the ranks tell in events of this name of their host: the first word of those that are ready."""
        conditions_of: dict[int, dict[str, Any]] = {}
        for event in self._events(event_name):
            if event.get("conditions") and (event_name == "finished" or event["rank"] not in conditions_of):
                conditions_of[event["rank"]] = event["conditions"]
        return tuple(RankState(rank, **measured) for rank, measured in sorted(conditions_of.items()))

    def _points(self, start: float) -> tuple[dict[str, Any], ...]:
        """Return when the first rank here began and ended each point, in s since `start`; a failed one has no end."""
        spans: dict[int, dict[str, Any]] = {}
        for event in self._events("point", "done"):
            if event["rank"] == (self._here[0] if self._here else 0):
                span = spans.setdefault(event["point"], {"point": event["point"]})
                span["began_s" if event["event"] == "point" else "ended_s"] = round(event["at"] - start, 3)
        return tuple(spans.values())

    def _events(self, *names: str) -> Iterator[dict[str, Any]]:
        for file in sorted(self._run.logs.glob("rank*.events.jsonl")):
            rank = int(file.name.removeprefix("rank").partition(".")[0])
            if self._here is not None and rank not in self._here:
                continue
            yield from ({**event, "rank": rank} for event in read_lines(file) if event.get("event") in names)


def _snapshot(counters: list[Counters]) -> Snapshot:
    """Return host and GPUs now; processes that end at this moment are given time to be forgotten by the driver."""
    deadline = time.monotonic() + FORGET_SECONDS
    gpus = tuple(counter.state() for counter in counters)
    while any(gpu.other_processes for gpu in gpus) and time.monotonic() < deadline:
        time.sleep(FORGET_SECONDS / 3)
        gpus = tuple(counter.with_other_processes(gpu) for counter, gpu in zip(counters, gpus, strict=True))
    return Snapshot(host.state(), gpus)
