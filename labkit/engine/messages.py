"""What a kernel asks of the process that starts workers, and what that process tells back: JSON objects, one a line.

With several nodes each station gets the same request, and puts its own node into it; what a station adds is NotRequired
here.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict, final


class Rendezvous(TypedDict):
    """Where the agents and ranks of several nodes meet: a store on the first one, which asks for a token.

    node: which one this is. listener: the descriptor of the first station's socket, which is the store's.
    """

    address: str
    port: int
    nodes: int
    token: str
    node: NotRequired[int]
    own_address: NotRequired[str]
    listener: NotRequired[int | None]


@final
class StartWorkers(TypedDict):
    """Start the workers of one launch of a run: `folder` is the run's, `launch` counts its launches from 1.

    workers: how many here. sampled: index and UUID of the GPUs whose counters are read; None measures no conditions.
    """

    kind: Literal["start"]
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
    rendezvous: NotRequired[Rendezvous]
    number: NotRequired[str]  # of a request that comes on two ways


@final
class StopLaunch(TypedDict):
    """End a launch of the run in `folder`."""

    kind: Literal["stop"]
    folder: str
    launch: int
    number: NotRequired[str]


@final
class DumpStacks(TypedDict):
    """Have these workers of the run in `folder` write where they stand."""

    kind: Literal["dump stacks"]
    folder: str
    pids: list[int]
    number: NotRequired[str]


@final
class Leave(TypedDict):
    """End, and with it every worker."""

    kind: Literal["leave"]
    number: NotRequired[str]


Request = StartWorkers | StopLaunch | DumpStacks | Leave


class LaunchOutcome(TypedDict):
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


class StationOutcome(LaunchOutcome):
    """How a launch ended on one of several nodes: also how many processes were left, and when it was told."""

    left: int
    unix: float
