"""What a kernel asks of the process that starts workers, and what that process tells back: JSON objects, one a line.

A request is told from the others by its first key. With several nodes each station gets the same request, and puts its
own node into it; what a station adds is NotRequired here.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict, final


@final
class StartWorkers(TypedDict):
    """Start the workers of one launch of a run: `folder` is the run's, `launch` counts its launches from 1.

    workers: how many here. sampled: index and UUID of the GPUs whose counters are read; None measures no conditions.
    """

    folder: str
    launch: int
    first_point: int
    workers: int
    cwd: str
    path: list[str]
    sampled: list[tuple[int, str | None]] | None
    environment: dict[str, str]
    node: NotRequired[int]
    ranks: NotRequired[tuple[int, int]]  # first and one past the last
    rendezvous: NotRequired[dict[str, Any]]  # address, port and token of the store; nodes, and which one this is
    number: NotRequired[str]  # of a request that comes on two ways


@final
class StopLaunch(TypedDict):
    """End a launch; `stop` is the run's folder."""

    stop: str
    launch: int
    number: NotRequired[str]


@final
class DumpStacks(TypedDict):
    """Have these workers write where they stand; `stacks` is the run's folder."""

    stacks: str
    pids: list[int]
    number: NotRequired[str]


@final
class LookAround(TypedDict):
    """Say what this node sees of the others; `probe` is the question's number, `peers` address and port of each."""

    probe: str
    folder: str
    peers: list[tuple[str, int]]
    number: NotRequired[str]


@final
class Leave(TypedDict):
    """End, and with it every worker."""

    leave: bool
    number: NotRequired[str]


Request = StartWorkers | StopLaunch | DumpStacks | LookAround | Leave


class Outcome(TypedDict):
    """How a launch ended: `run` is its mark, `first` the ranks that failed first, `error` a reason or empty.

    exits: exit status by rank, of those. statuses: by pid, of all workers; JSON makes both keys texts. stopped: the
    kernel had asked for the end.
    """

    first: list[int]
    error: str
    run: NotRequired[str]
    launch: NotRequired[int]
    exits: NotRequired[dict[Any, int]]
    statuses: NotRequired[dict[Any, int]]
    stopped: NotRequired[bool]


class StationOutcome(Outcome):
    """How a launch ended on one of several nodes: also how many processes were left, and when it was told."""

    left: int
    unix: float
